"""Delta tables as Airflow assets: ``delta://`` URIs for scheduling DAGs on the changes of merges."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, quote, unquote

from airflow.providers.common.compat.sdk import Asset, AssetAlias

from airflow_delta_merge.config import MergeTarget
from airflow_delta_merge.identifiers import parse_multipart, quote_identifier

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import AssetWatcher

_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?P<rest>/.*)", re.DOTALL)
#: Hadoop's alternative schemes for the same store.
SCHEMES_OF_ONE_STORE = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "wasb": "wasbs"}
_TABLE = "table"


#: The alias under which each merge that committed something reports its target's asset.
MERGED_TABLES = AssetAlias(name="delta_merge")


def create_asset(*, path: str | None = None, table: str | None = None, extra: dict[str, Any] | None = None) -> Asset:
    """A table as an asset, by its path or its name.

    :param path: an absolute path or a URI: ``/lake/day`` is ``delta://file/lake/day``, ``s3a://bucket/day`` is
        ``delta://s3/bucket/day``.
    :param table: a name as in the merge's target: ``sales.day`` is ``delta://table/sales.day``.
    :param extra: the asset's extra.
    :raises ValueError: for neither or both of the two, or for a relative path, which differs between machines.
    """
    return Asset(uri=_uri(MergeTarget(path=path, table=table)), extra=extra or {})


def delta_asset(target: MergeTarget | str | Mapping[str, Any], *, watchers: Sequence[AssetWatcher] = ()) -> Asset:
    """The asset of a merge's target, to schedule a DAG on: ``DAG(…, schedule=[delta_asset("/lake/day")])``.

    :param target: the ``target`` of :class:`~airflow_delta_merge.operators.delta_merge.DeltaMergeOperator`.
    :param watchers: watchers with a :class:`~airflow_delta_merge.triggers.delta_commit.DeltaCommitTrigger`. They
        report changes that no task of this Airflow makes.
    :raises ValueError: for a relative path.
    """
    uri = _uri(MergeTarget.of(target))
    return Asset(uri=uri, watchers=list(watchers)) if watchers else Asset(uri=uri)  # Airflow 2 has no watchers


def sanitize_uri(uri: SplitResult) -> SplitResult:
    """Check and normalise a ``delta://`` URI, for Airflow's provider manager.

    :raises ValueError: when it names no table.
    """
    path = re.sub(r"/{2,}", "/", unquote(uri.path)).rstrip("/")
    if not path:
        raise ValueError(
            "A delta:// URI names a table: delta://file/folder, delta://s3/bucket/folder or delta://table/name."
        )
    if uri.netloc == _TABLE:
        path = path.lower()
        parse_multipart(path.lstrip("/"))  # only to refuse what is no name
    return uri._replace(netloc=uri.netloc or "file", path=quote(path, safe="/="), query="", fragment="")


def _uri(target: MergeTarget) -> str:
    if target.table is not None:
        name = ".".join(quote(_written(part), safe="") for part in parse_multipart(target.table))
        return f"delta://{_TABLE}/{name.lower()}"
    assert target.path is not None
    if target.path.startswith("/"):
        return f"delta://file{quote(target.path, safe='/=')}"
    match = _URI.fullmatch(target.path)
    if match is None:
        raise ValueError(
            f"{target.path!r} is a relative path, so it names no table that others know: make it absolute."
        )
    scheme, rest = match["scheme"].lower(), quote(match["rest"].lstrip("/"), safe="/=")
    return f"delta://{SCHEMES_OF_ONE_STORE.get(scheme, scheme)}/{rest}"


def _written(part: str) -> str:
    """A part of a table's name, in backticks where a dot in it would make two of it."""
    return quote_identifier(part) if "." in part or "`" in part else part
