"""``@task.delta_merge``: a function that returns what to merge, and the merge, as one task."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, cast

from airflow.providers.common.compat.sdk import (
    SET_DURING_EXECUTION,
    Asset,
    DecoratedOperator,
    ObjectStoragePath,
    TaskDecorator,
    context_merge,
    determine_kwargs,
    redact,
    task_decorator_factory,
)
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

from airflow_delta_merge.config import MergeConfig, MergeSource, MergeStatement
from airflow_delta_merge.config.transport import from_data
from airflow_delta_merge.connections.secrets import mask_secrets
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.operators.arguments import PARTS_OF_A_MERGE, plain_source
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator
from airflow_delta_merge.operators.mapped_arguments import values_of_tasks
from airflow_delta_merge.operators.parse_checks import check_arguments
from airflow_delta_merge.task_exceptions import DeltaMergeFailException

if AIRFLOW_V_3_0_PLUS or TYPE_CHECKING:
    from airflow.sdk.bases.decorator import _TaskDecorator
else:
    from airflow.decorators.base import _TaskDecorator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, XComArg

_NEEDED = ("target", "on", "clauses")
# With none of these in the decorator, the function returns the whole merge.
_SAYING_WHAT = (*_NEEDED, "pattern")
_OF_THE_FUNCTION = ("source", "sql", "merges")
# The parts of a merge, with their defaults.
_PARTS = {name: nothing for name, nothing in PARTS_OF_A_MERGE.items() if name not in _OF_THE_FUNCTION}


class _DeltaMergeDecoratedOperator(DecoratedOperator, DeltaMergeOperator):
    """Merges what a function returns: the source, or a whole merge if the decorator has no part of one.

    :param python_callable: the function.
    :param op_args: its positional arguments. (templated)
    :param op_kwargs: its arguments by name. (templated)
    """

    template_fields: Sequence[str] = (*DecoratedOperator.template_fields, *DeltaMergeOperator.template_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **DecoratedOperator.template_fields_renderers,
        **DeltaMergeOperator.template_fields_renderers,
    }
    custom_operator_name: str = "@task.delta_merge"
    overwrite_rtif_after_execution: bool = True

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Collection[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        _check_function(python_callable, kwargs)
        self._returned: MergeConfig | MergeStatement | None = None
        super().__init__(
            python_callable=python_callable, op_args=op_args, op_kwargs=op_kwargs, source=SET_DURING_EXECUTION, **kwargs
        )

    def _check_at_parse(self) -> None:
        parts = {name: getattr(self, name) for name in _PARTS}
        self._returns_whole_merge = all(parts[name] is None for name in _SAYING_WHAT)
        _check_parts(parts)

    def execute(self, context: Context) -> Any:
        """Call the function, and merge what it returns."""
        context_merge(context, self.op_kwargs)
        arguments = determine_kwargs(self.python_callable, self.op_args, context)
        returned = self.python_callable(*self.op_args, **arguments)
        if self._returns_whole_merge:
            self._returned = self._whole_merge(returned)
            mask_secrets(self._returned.to_dict())
            self.statement = self._returned.to_sql()
        else:
            self.source = self._source(returned)
            self._show_merge()
        return super().execute(context)

    def arguments_to_resume(self) -> dict[str, Any]:
        """What the function returned, without secrets: it is not called again."""
        return {"returned": _masked(self._merge_config().to_dict())}

    def execute_complete(
        self, context: Context, event: Mapping[str, Any], *, returned: Mapping[str, Any] | None = None, **arguments: Any
    ) -> Any:
        """Take the result, and show again what the function returned before the task was deferred."""
        if returned is not None:
            with suppress(MergeConfigError):  # it was masked; only what is shown depends on it
                self._returned = cast("MergeConfig | MergeStatement", from_data(returned))
                self.statement = self._returned.to_sql()
        return super().execute_complete(context, event, **arguments)

    def _do_render_template_fields(
        self, parent: Any, template_fields: Iterable[str], context: Context, jinja_env: Any, seen_oids: set[int]
    ) -> None:
        of_tasks = values_of_tasks(self, context) if parent is self else set()
        super()._do_render_template_fields(parent, template_fields, context, jinja_env, seen_oids | of_tasks)

    def _arguments_of_tasks(self, context: Context) -> Collection[str]:
        return ()  # a function is mapped over its own arguments

    def _merge_config(self) -> MergeConfig | MergeStatement:
        return self._returned if self._returned is not None else super()._merge_config()

    def dry_run(self, **_: Any) -> None:
        """Refuse: only the function knows what to merge, and calling it may have side effects."""
        raise NotImplementedError(
            f"{_name(self.python_callable)} is not called for a dry run, because it may have side effects. Call it "
            "yourself, and pass its result to a DeltaMergeOperator as source or, if it is a whole merge, to "
            "DeltaMergeHook.plan."
        )

    def _whole_merge(self, returned: Any) -> MergeConfig | MergeStatement:
        if isinstance(returned, (MergeConfig, MergeStatement)):
            return returned
        needed = ", ".join(_NEEDED)
        return self._refuse(returned, f"without {needed} in the decorator it must return a MergeConfig.")

    def _source(self, returned: Any) -> Any:
        if isinstance(returned, (MergeConfig, MergeStatement)):
            return self._refuse(
                returned, "with target, on and clauses in the decorator it must return only the source."
            )
        path_types = (str, os.PathLike, ObjectStoragePath, Asset)
        is_source = isinstance(returned, (*path_types, Mapping, MergeSource)) or (
            isinstance(returned, (list, tuple)) and all(isinstance(path, path_types) for path in returned)
        )
        if not is_source:
            return self._refuse(
                returned, "it must return the source: a query, a table's name, a path, a list of paths or a dict."
            )
        if not returned:
            return self._refuse(returned, "an empty one has no source to merge.")
        return plain_source(returned)

    def _refuse(self, returned: Any, rule: str) -> NoReturn:
        what = "None" if returned is None else f"a value of type {type(returned).__name__}"
        raise DeltaMergeFailException(f"{_name(self.python_callable)} returned {what}, but {rule}")


def delta_merge_task(
    python_callable: Callable[..., Any] | None = None, multiple_outputs: bool | None = None, **kwargs: Any
) -> TaskDecorator:
    """Turn a function into a merge task: ``@task.delta_merge(target=…, on=…, clauses=…)``.

    The function returns the source, in any form that
    :class:`~airflow_delta_merge.operators.delta_merge.DeltaMergeOperator` accepts; a dict is always a source. With none
    of ``target``, ``on``, ``clauses`` and ``pattern`` in the decorator, it returns the whole merge, as a
    :class:`~airflow_delta_merge.config.MergeConfig` or :class:`~airflow_delta_merge.config.MergeStatement`. What it
    returns is used unchanged: a template in it could come from untrusted data. Its own arguments may be templates.

    :param python_callable: the function.
    :param multiple_outputs: whether each entry of the result gets its own XCom; by default only the counts of rows and
        touched files do.
    :param kwargs: the operator's arguments, without ``source`` and ``sql``.
    :raises MergeConfigError: when the arguments are invalid in every run.
    """
    if python_callable is None:
        return cast("TaskDecorator", partial(delta_merge_task, multiple_outputs=multiple_outputs, **kwargs))
    decorated = task_decorator_factory(
        python_callable=python_callable,
        multiple_outputs=bool(multiple_outputs),
        decorated_operator_class=_DeltaMergeDecoratedOperator,
        **kwargs,
    )
    decorated.__class__ = _CheckedTaskDecorator  # type: ignore[assignment]
    return decorated


class _CheckedTaskDecorator(_TaskDecorator[Any, Any, Any]):
    """A decorated function, which checks the operator's arguments where it is mapped, also those of ``override``."""

    def expand(self, **map_kwargs: Any) -> XComArg:
        self._check()
        return super().expand(**map_kwargs)

    def expand_kwargs(self, kwargs: Any, *, strict: bool = True) -> XComArg:
        self._check()
        return super().expand_kwargs(kwargs, strict=strict)

    def _check(self) -> None:
        """Make a task outside the DAG; Airflow makes mapped tasks only in a run."""
        self.operator_class(
            python_callable=self.function,
            multiple_outputs=self.multiple_outputs,
            **self.kwargs,
            _airflow_from_mapped=True,
            _airflow_mapped_validation_only=True,
        )


def _check_function(function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    if iscoroutinefunction(function):
        raise MergeConfigError(
            f"{_name(function)} is async, which @task.delta_merge does not support. Use a plain def."
        )
    if given := [name for name in _OF_THE_FUNCTION if arguments.get(name) is not None]:
        raise MergeConfigError(
            f"{_name(function)} returns what to merge. Remove {', '.join(given)} from the decorator."
        )


def _check_parts(parts: dict[str, Any]) -> None:
    """Check the decorator's parts of the merge.

    :param parts: the values of :data:`_PARTS`, made plain by the operator.
    """
    if all(parts[name] is None for name in _SAYING_WHAT):
        if given := [name for name, nothing in _PARTS.items() if parts[name] != nothing]:
            raise MergeConfigError(
                f"Without {', '.join(_NEEDED)} the function returns the whole merge. Remove {', '.join(given)}, too."
            )
        return
    if missing := [name for name in _needed(parts) if parts[name] is None]:
        raise MergeConfigError(
            f"The decorator lacks {', '.join(missing)}. Set {', '.join(_NEEDED)}, or target and pattern, or none of "
            "them if the function returns a MergeConfig."
        )
    check_arguments({**parts, "source": "stand_in", "sql": None})


def _needed(parts: Mapping[str, Any]) -> Sequence[str]:
    return _NEEDED if parts.get("pattern") is None else _NEEDED[:1]


def _masked(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _masked(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_masked(part) for part in value]
    return str(redact(value)) if isinstance(value, str) else value


def _name(function: Callable[..., Any]) -> str:
    return f"The function {getattr(function, '__name__', repr(function))}"
