"""Gives an operator's arguments their values in a run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateNotFound

from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.operators.arguments import names_file, window_template
from airflow_delta_merge.operators.renderer import IN_FILES, Renderer
from airflow_delta_merge.operators.spark_options import CONF_AT_RUN_TIME, check_options_of_a_run

if TYPE_CHECKING:
    from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator


def read_template_files(operator: DeltaMergeOperator) -> None:
    """Put the content of the files that arguments name in place of the names."""
    names = [name for name in IN_FILES if names_file(getattr(operator, name))]
    env = operator.get_template_env() if names else None
    for name in names:
        with suppress(TemplateNotFound):  # rendering says so
            if env is not None and env.loader is not None:
                # With a line break at its end the content isn't taken for a file's name.
                setattr(operator, name, env.loader.get_source(env, getattr(operator, name))[0] + "\n")


def render_arguments(
    operator: DeltaMergeOperator, names: Iterable[str], renderer: Renderer, of_tasks: Collection[str]
) -> None:
    """Give an operator's arguments their values in this run.

    :param names: the arguments to render.
    :param of_tasks: those that other tasks returned.
    :raises MergeConfigError: when a value is not allowed in any merge.
    """
    templates = operator.conf or {}
    if templates and ("conf" in of_tasks or id(templates) in renderer.seen_oids):
        raise MergeConfigError(CONF_AT_RUN_TIME)
    for name in names:
        setattr(operator, name, renderer.render(name, getattr(operator, name), of_task=name in of_tasks))
    # What another task returned may leave the interval out.
    operator.window = renderer.render("window", window_template(operator.window), of_task=True)
    operator.merges = renderer.render("merges", _with_windows(operator.merges), of_task=True)
    check_options_of_a_run(operator)
    _check_rendered_conf(templates, operator.conf or {})


def _with_windows(merges: Any) -> Any:
    """The merges with what their windows leave out; unchanged if it is no list."""
    if not isinstance(merges, Sequence) or isinstance(merges, str):
        return merges
    return [
        {**merge, "window": window_template(merge["window"])}
        if isinstance(merge, Mapping) and "window" in merge
        else merge
        for merge in merges
    ]


def _check_rendered_conf(templates: Mapping[str, Any], rendered: Mapping[str, Any]) -> None:
    """Check that no value of a run refers to something, as Spark would put it in place: ``${env:PASSWORD}``.

    :param templates: the properties as the DAG has them, which may refer to what they like.
    :raises MergeConfigError: when one does.
    """
    for name, value in rendered.items():
        if "${" in str(value) and "${" not in str(templates[name]):
            raise MergeConfigError(
                f"The value of {name} in this run contains ${{…}}, which Spark would replace by an environment "
                "variable or another property. Remove it."
            )
