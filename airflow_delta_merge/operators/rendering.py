"""Gives the operator's arguments their values in a run: renders templates, and resolves the outputs of other tasks.

Airflow's own rendering is not used for them. A DAG with ``render_template_as_native_obj`` would read each text as a
Python literal and take the quotes off ``'closed'``, and any text that ends in ``.sql`` would name a file.
"""

from __future__ import annotations

import copy
import logging
from ast import literal_eval
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, time, timedelta
from numbers import Number
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError, TemplateNotFound, Undefined, UndefinedError

from airflow_delta_merge.config.checks import is_output
from airflow_delta_merge.exceptions import MergeConfigError
from airflow_delta_merge.operators.arguments import INTERVAL, names_file, to_plain, window_template
from airflow_delta_merge.operators.spark_options import APPLICATION_NAME, CONF_AT_RUN_TIME, check_options_of_a_run
from airflow_delta_merge.operators.templates import is_expression

if TYPE_CHECKING:
    from jinja2 import Environment, Template

    from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator

# The package's own templates, which stand beside values of other tasks.
_OWN_TEMPLATES = frozenset({*INTERVAL.values(), APPLICATION_NAME})
# What a single expression gives that is a text in SQL, a path or a name; other values stay what they are.
_TEXTS = (str, Number, date, time, timedelta, Undefined)
# Parts of arguments whose values are texts of any kind, e.g. JSON.
_ANY_TEXTS = frozenset({"conf", "options", "properties"})
# The arguments that may name a file with their content, also inside ``merges``.
_IN_FILES = ("sql", "source")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Renderer:
    """Renders arguments with the values of a run.

    :param context: the variables of templates.
    :param env: Jinja's environment.
    :param seen_oids: ids of values that other tasks returned, which are no templates.
    """

    context: Any
    env: Environment
    seen_oids: Collection[int] = ()

    def render(self, name: str, value: Any, *, of_task: bool = False) -> Any:
        """The value of an argument in this run.

        :param of_task: whether another task returned it. It is then no template, whatever it holds.
        :raises MergeConfigError: when a value is None that was not None in the DAG, for a missing file, and for an
            invalid template.
        :raises UndefinedError: when a template's variable has no value.
        """
        try:
            return self._value((name,), value, of_task=of_task)
        except UndefinedError as error:
            raise UndefinedError(f"{name}: {error.message or error}") from error
        except TemplateNotFound as error:
            raise MergeConfigError(
                f"{name} names the file {error.name}, which is neither beside the DAG file nor in the DAG's "
                "template_searchpath. Put it there. If it is not a file, write a source as a dict like "
                '{"table": …} or {"path": …}.'
            ) from error
        except TemplateError as error:
            raise MergeConfigError(f"{name} is not a valid template: {error}. Correct it.") from error
        except MergeConfigError:
            raise
        except Exception:  # of an expression, or of Airflow, which may not answer now
            log.error("%s could not be rendered.", name)
            raise

    def _value(self, path: tuple[Any, ...], value: Any, *, of_task: bool) -> Any:
        of_task = of_task or id(value) in self.seen_oids
        if isinstance(value, dict):
            return {key: self._value((*path, key), part, of_task=of_task) for key, part in value.items()}
        if isinstance(value, list):
            return [self._value((*path, place), part, of_task=of_task) for place, part in enumerate(value)]
        if is_output(value):
            rendered = to_plain(value.resolve(self.context))
        elif isinstance(value, str) and (not of_task or value in _OWN_TEMPLATES):
            rendered = self._text(path, value)
            if isinstance(rendered, str) and is_expression(value):
                rendered = _of_expression(path, rendered)
        else:
            return value
        if rendered is None:
            raise none_in_this_run(_written(path))
        return rendered

    def _text(self, path: tuple[Any, ...], text: str) -> Any:
        may_be_file = path[-1] in _IN_FILES and (len(path) == 1 or (len(path) == 3 and path[0] == "merges"))
        if not may_be_file or not names_file(text):
            return _rendered(self.env.from_string(text), self.context)
        if self.env.loader is None:  # without a DAG
            raise TemplateNotFound(text)
        return _rendered(self.env.get_template(text), self.context)


def none_in_this_run(argument: str) -> MergeConfigError:
    """The error for an argument without a value: leaving it out could remove the merge's bounds."""
    return MergeConfigError(
        f"{argument} was given, but its value in this run is None. Check what the task or the template gives, or "
        f"remove {argument}."
    )


def _of_expression(path: tuple[Any, ...], text: str) -> Any:
    """What a single expression gave, of which a template that isn't native has made a text.

    :raises MergeConfigError: when it was a list or a dict, which as a text is no path, name or SQL.
    """
    if text == "None":
        return None
    if path[-1] == "create_table" and text in ("True", "False"):
        return text == "True"
    if text[:1] in ("[", "{") and _ANY_TEXTS.isdisjoint(path):
        kind = None
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            kind = type(literal_eval(text)).__name__
        if kind is not None:
            raise MergeConfigError(
                f"{_written(path)} is the text of a {kind} in this run, because a template gives a text. Set "
                "render_template_as_native_obj=True in the DAG or, if a task returns it, pass the task's output "
                "instead of a template."
            )
    return text


def _rendered(template: Template, context: Any) -> Any:
    """As Airflow renders, but without reading a text as a Python literal."""
    variables, env = copy.copy(context), template.environment
    variables.update((name, value) for name, value in template.globals.items() if name not in context)
    parts = list(template.root_render_func(env.context_class(env, variables, template.name, template.blocks)))
    # Only a native environment gives anything but texts.
    if len(parts) == 1 and not isinstance(parts[0], _TEXTS):
        return parts[0]
    return "".join(map(str, parts))


def _written(path: tuple[Any, ...]) -> str:
    """A place in the arguments as Python writes it: ``merges[0].pattern.where``."""
    first, *others = path
    return str(first) + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in others)


def read_template_files(operator: DeltaMergeOperator) -> None:
    """Put the content of the files that arguments name in place of the names."""
    names = [name for name in _IN_FILES if names_file(getattr(operator, name))]
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
