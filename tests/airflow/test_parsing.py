"""What a DAG pulls in when it is parsed, and what Airflow knows of the provider."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

from tests.airflow.conftest import DAGS

# The last two are what forms for connections were once made of.
HEAVY = ("pyspark", "py4j", "delta", "deltalake", "pandas", "numpy", "pyarrow", "wtforms", "flask_appbuilder")


def test_parsing_imports_nothing_heavy() -> None:
    code = f"""
import json, runpy, sys
runpy.run_path({str(DAGS / "merges.py")!r})
print(json.dumps(sorted({{name.split(".")[0] for name in sys.modules}} & set({HEAVY!r}))))
print(json.dumps("airflow.providers.apache.spark.hooks.spark_submit" in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    heavy, submit_hook = map(json.loads, done.stdout.splitlines()[-2:])
    assert heavy == []
    assert submit_hook is False, "the Spark provider's hook belongs to the task's run"


def test_provider_info_is_valid() -> None:
    import airflow
    from jsonschema import Draft7Validator

    from airflow_delta_merge.provider import get_provider_info

    schema = json.loads((Path(airflow.__file__).parent / "provider_info.schema.json").read_text())
    assert list(Draft7Validator(schema).iter_errors(get_provider_info())) == []


def test_airflow_finds_the_provider() -> None:
    from airflow.providers_manager import ProvidersManager

    assert "airflow-provider-delta-merge" in ProvidersManager().providers


def test_airflow_finds_the_decorator() -> None:
    from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime

    from airflow_delta_merge.decorators.delta_merge import delta_merge_task

    assert ProvidersManagerTaskRuntime().taskflow_decorators["delta_merge"] is delta_merge_task


def test_airflow_finds_the_links() -> None:
    from airflow.providers_manager import ProvidersManager

    from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator

    found = set(ProvidersManager().extra_links_class_names)
    links = {f"{type(link).__module__}.{type(link).__name__}" for link in DeltaMergeOperator.operator_extra_links}
    assert links <= found


def test_modules_that_the_provider_names_exist() -> None:
    from importlib import import_module

    (found,) = [point for point in entry_points(group="apache_airflow_provider") if "delta_merge" in point.value]
    info = found.load()()
    for kind in ("operators", "sensors", "hooks"):
        for entry in info[kind]:
            for module in entry["python-modules"]:
                import_module(module)
    (connection_type,) = info["connection-types"]
    module, _, name = connection_type["hook-class-name"].rpartition(".")
    assert getattr(import_module(module), name).conn_type == connection_type["connection-type"]
