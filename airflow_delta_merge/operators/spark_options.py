"""The operator's options for Spark: where it runs, what it gets, and as which user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import BaseOperator

from airflow_delta_merge.config.checks import is_output
from airflow_delta_merge.connections.conf import check_conf
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.launch.option_checks import ALL_BUT_CONF, check_option
from airflow_delta_merge.operators.arguments import check_is_known, is_unknown, to_plain

if TYPE_CHECKING:
    from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook

CONF_AT_RUN_TIME = (
    "conf must be a dict with fixed names in the DAG file; only its values may be templates. Otherwise a run could set "
    "any Spark property."
)
#: The name of a task's Spark application, where the author gave none.
APPLICATION_NAME = "{{ ti.dag_id }}.{{ ti.task_id }}"


# A new option is added here and in launch.option_checks: the hook passes all of them to Airflow's SparkSubmitHook under
# the same names. Each is a parameter of its own, because Airflow's default_args and partial go by the operators'
# parameters.
class SparkOptions(BaseOperator):
    """The options of :class:`~airflow_delta_merge.operators.delta_merge.DeltaMergeOperator` for Spark.

    :param conn_id: a connection of type ``delta_merge`` or :ref:`spark <howto/connection:spark>`. If ``spark_default``
        doesn't exist, Spark runs as ``local[*]`` on the worker; any other connection must exist. Deploy mode
        ``cluster``, on YARN and Kubernetes, needs a ``result_path`` in its extra. (templated)
    :param conf: Spark properties; they take precedence over the connection's and this package's own. Their names are
        fixed in the DAG, their values may be templates; the connection's ``allowed_conf`` may restrict the names.
        (templated)
    :param jars: further jars, comma-separated; Delta's own are always there. (templated)
    :param packages: Maven coordinates of further jars, comma-separated; resolved at each start. (templated)
    :param exclude_packages: dependencies of ``packages`` not to load, as Maven coordinates without versions
        (``group:artifact``), comma-separated. (templated)
    :param driver_memory: memory of the driver, e.g. ``2g``; with a local master it is the heap of driver and executors.
        (Default: 1g)
    :param executor_memory: memory of each executor, e.g. ``2g``.
    :param executor_cores: cores of each executor.
    :param num_executors: how many executors to start.
    :param total_executor_cores: cores of all executors together, on a standalone master.
    :param yarn_queue: the YARN queue of the application.
    :param keytab: path of the Kerberos keytab on the worker. (templated)
    :param principal: the Kerberos principal that Spark logs in as. (templated)
    :param proxy_user: the user that the application runs as, if the cluster lets the submitter choose. (templated)
    :param name: the name of the Spark application; by default DAG and task. (templated)
    :param spark_binary: the spark-submit to use. By default the connection's, else the one on the PATH, else the one
        beside the Python that runs Airflow.
    :param keep_warm: seconds that Spark stays on the worker after the merge, to take the next merge of the same kind;
        0 ends it with the merge. By default the connection's, else 0. See ``docs/how_to/warm.md``.
    :param verbose: whether to log spark-submit's arguments and every line that Spark prints.
    :raises MergeConfigError: when an option has a wrong type, or ``conf`` a name that is not allowed.
    """

    template_fields: Sequence[str] = (
        "conn_id",
        "conf",
        "jars",
        "packages",
        "exclude_packages",
        "keytab",
        "principal",
        "proxy_user",
        "name",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"conf": "json"}

    def __init__(
        self,
        *,
        conn_id: str = "spark_default",
        conf: Mapping[str, Any] | None = None,
        jars: str | None = None,
        packages: str | None = None,
        exclude_packages: str | None = None,
        driver_memory: str | None = None,
        executor_memory: str | None = None,
        executor_cores: int | None = None,
        num_executors: int | None = None,
        total_executor_cores: int | None = None,
        yarn_queue: str | None = None,
        keytab: str | None = None,
        principal: str | None = None,
        proxy_user: str | None = None,
        name: str = APPLICATION_NAME,
        spark_binary: str | None = None,
        keep_warm: float | None = None,
        verbose: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self.conf = to_plain(conf)
        self.jars = jars
        self.packages = packages
        self.exclude_packages = exclude_packages
        self.driver_memory = driver_memory
        self.executor_memory = executor_memory
        self.executor_cores = executor_cores
        self.num_executors = num_executors
        self.total_executor_cores = total_executor_cores
        self.yarn_queue = yarn_queue
        self.keytab = keytab
        self.principal = principal
        self.proxy_user = proxy_user
        self.name = name
        self.spark_binary = spark_binary
        self.keep_warm = keep_warm
        self.verbose = verbose
        check_spark_options(vars(self))

    @cached_property
    def hook(self) -> DeltaMergeHook:
        """The hook, made (and its module imported) when the task runs."""
        from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook

        return DeltaMergeHook(conf=self.conf, **{option: getattr(self, option) for option in ALL_BUT_CONF})


def check_spark_options(given: Mapping[str, Any]) -> None:
    """Check the options of Spark while the DAG is parsed, of those that are given.

    :raises MergeConfigError: when one has a wrong type.
    """
    for option in ALL_BUT_CONF:
        if option in given:
            _check_option(option, given[option])
    _check_conf(to_plain(given.get("conf")))


def check_options_of_a_run(operator: SparkOptions) -> None:
    """Check the options that had no values while the DAG was parsed.

    :raises MergeConfigError: when one has a wrong type, e.g. as another task returned a list.
    """
    for name in SparkOptions.template_fields:
        value = getattr(operator, name)
        if name == "conf":
            _check_conf(value)
        elif isinstance(value, (int, float)):
            setattr(operator, name, str(value))
        else:
            _check_option(name, value)


def _check_option(name: str, value: Any) -> None:
    if name in SparkOptions.template_fields and is_unknown(value):
        return
    check_is_known(name, value)
    check_option(name, value)


def _check_conf(conf: Any) -> None:
    if conf is not None and not isinstance(conf, Mapping):
        raise MergeConfigError(CONF_AT_RUN_TIME)
    # Another task returns the value.
    check_conf({name: "" if is_output(value) else value for name, value in (conf or {}).items()})
