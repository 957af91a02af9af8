"""Connections of the type ``delta_merge``: what a merge takes from them, where it goes, and their test."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_delta_merge.config import MergeConfig, when_matched_update_all
from airflow_delta_merge.connections.s3 import S3Access
from airflow_delta_merge.connections.spark import ConnectionSettings, find_connection
from airflow_delta_merge.contract.request import JobRequest
from airflow_delta_merge.contract.result import MergeResult
from airflow_delta_merge.exceptions import SparkConnectionError, StoreAccessError
from airflow_delta_merge.hooks.delta_merge import DeltaMergeHook
from airflow_delta_merge.launch.spark_submit import SparkSubmit
from airflow_delta_merge.launch.staging import staged
from airflow_delta_merge.operators.delta_merge import DeltaMergeOperator
from airflow_delta_merge.runtime.log_store import log_store_jar
from airflow_delta_merge.task_exceptions import DeltaMergeException
from tests.airflow.test_operator import GOOD
from tests.airflow.test_operator_in_a_run import context
from tests.readable_ids import readable

SECRET = {"spark.hadoop.fs.s3a.secret.key": "s3cr3t-value", "spark.hadoop.fs.azure.account.key.store": 12345678}
CONF = {**SECRET, "spark.sql.catalog.lake": "some.Catalog", "spark.sql.ansi.enabled": True}
CONFIG = MergeConfig(target="t", source="s", on=["id"], clauses=[when_matched_update_all()])
Define = Callable[..., None]


@pytest.fixture
def define(monkeypatch: pytest.MonkeyPatch) -> Define:
    """Define the connection ``lake``."""

    def define(extra: dict[str, Any] | None = None, **parts: Any) -> None:
        connection = {"conn_type": "delta_merge", "host": "local[1]", "extra": extra or {}, **parts}
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(connection))

    return define


def settings() -> ConnectionSettings:
    return ConnectionSettings.of(find_connection("lake"))


@pytest.mark.parametrize("master", ["local[2]", "yarn", "spark://a:7077,b:7077"])
def test_the_master_is_its_host(define: Define, master: str) -> None:
    define({"deploy-mode": "client"}, host=master)
    command = SparkSubmit(conn_id="lake")._build_spark_submit_command("job.py")
    assert command[1:3] == ["--master", master]
    assert command[command.index("--deploy-mode") + 1] == "client"


def test_a_master_that_is_missing(define: Define) -> None:
    define({}, host=None)
    with pytest.raises(SparkConnectionError, match="'lake' has no master"):
        SparkSubmit(conn_id="lake")


def test_spark_connect_is_refused_with_what_to_do(define: Define) -> None:
    define({}, host="sc://connect:15002")
    with pytest.raises(SparkConnectionError, match="Set its host to the master of that cluster"):
        SparkSubmit(conn_id="lake")


def test_the_connection_sets_the_user_and_the_queue(define: Define) -> None:
    define({}, host="yarn")
    who = {"yarn_queue": "etl", "keytab": "/etc/etl.keytab", "principal": "etl@LAKE", "proxy_user": "ada"}
    merge = DeltaMergeOperator(task_id="merge", conn_id="lake", **GOOD, **who)
    with staged() as staging:
        command = merge.hook.preparation.for_merge(staging, JobRequest(merges=CONFIG)).command("job.py")
    options = {option: command[command.index(option) + 1] for option in ("--queue", "--keytab", "--principal")}
    assert options == {"--queue": "etl", "--keytab": "/etc/etl.keytab", "--principal": "etl@LAKE"}
    assert command[command.index("--proxy-user") + 1] == "ada"


def test_spark_decides_whether_it_can_begin_without_an_executor(define: Define) -> None:
    """It can with dynamic allocation. Airflow's hook left 0 out, and Spark began with two executors."""
    define({}, host="yarn")
    merge = DeltaMergeOperator(task_id="merge", conn_id="lake", **GOOD, num_executors=0)
    with staged() as staging:
        command = merge.hook.preparation.for_merge(staging, JobRequest(merges=CONFIG)).command("job.py")
    assert command[command.index("--num-executors") + 1] == "0"


def test_packages_can_leave_out_what_they_depend_on(define: Define) -> None:
    define({}, host="local[1]")
    packages = {"packages": "org:a:1,org:b:2", "exclude_packages": "org.slf4j:slf4j-api,org:c"}
    merge = DeltaMergeOperator(task_id="merge", conn_id="lake", **GOOD, **packages)
    with staged() as staging:
        command = merge.hook.preparation.for_merge(staging, JobRequest(merges=CONFIG)).command("job.py")
    assert command[command.index("--packages") + 1] == "org:a:1,org:b:2"
    assert command[command.index("--exclude-packages") + 1] == "org.slf4j:slf4j-api,org:c"


def test_its_properties_travel_by_a_private_file_and_its_jars_on_the_command_line(define: Define) -> None:
    define({"conf": CONF, "jars": "/of/connection.jar", "namespace": "not-of-kubernetes"}, host="local[1]")
    hook = DeltaMergeHook(conn_id="lake", jars="/of/task.jar", conf={"spark.sql.catalog.lake": "of the task"})
    with staged() as staging:
        submit = hook.preparation.for_merge(staging, JobRequest(merges=CONFIG))
        command = " ".join(submit._build_spark_submit_command(str(staging.application)))
        properties = staging.properties.read_text().splitlines()
        mode = staging.properties.stat().st_mode & 0o777
    assert f"--jars {log_store_jar()},/of/connection.jar,/of/task.jar" in command
    assert not [word for word in ("s3cr3t", "12345678", "catalog", "not-of-kubernetes") if word in command]
    assert {
        "spark.hadoop.fs.s3a.secret.key=s3cr3t-value",
        "spark.hadoop.fs.azure.account.key.store=12345678",
        "spark.sql.ansi.enabled=true",
        "spark.sql.catalog.lake=of\\ the\\ task",
        "spark.ui.enabled=false",
        "spark.submit.callSystemExitOnMainExit=true",
        "spark.sql.codegen.cache.maxEntries=1000",
    } <= set(properties)
    assert mode == 0o600


def test_jars_behind_a_password_travel_by_the_private_file(define: Define) -> None:
    define({"jars": "/of/connection.jar"}, host="local[1]")
    hook = DeltaMergeHook(conn_id="lake", jars="https://joe:of-jars@repo/x.jar")
    with staged() as staging:
        command = hook.preparation.for_merge(staging, JobRequest(merges=CONFIG)).command("job.py")
        properties = staging.properties.read_text()
    assert "--jars" not in command
    assert "of-jars" not in " ".join(command)
    jars = f"{log_store_jar()},/of/connection.jar,https\\://joe\\:of-jars@repo/x.jar"
    assert f"spark.jars={jars}\n" in properties


def test_secrets_among_its_properties_are_masked(define: Define, monkeypatch: pytest.MonkeyPatch) -> None:
    masked: list[str] = []
    monkeypatch.setattr("airflow_delta_merge.connections.secrets.mask_secret", masked.append)
    define({"conf": CONF, "jars": "https://joe:of-jars@repo/x.jar"})
    assert "s3cr3t" not in repr(settings())
    assert masked == ["s3cr3t-value", "12345678", "of-jars"]


def test_airflow_hides_its_secrets_where_it_shows_connections() -> None:
    from airflow.api_fastapi.core_api.datamodels.connections import ConnectionResponse

    extra = json.dumps({"conf": {"spark.hadoop.fs.s3a.secret.key": "s3cr3t-value", "spark.x": "y"}})
    shown = ConnectionResponse.redact_extra(extra)
    assert shown is not None
    assert json.loads(shown)["conf"] == {"spark.hadoop.fs.s3a.secret.key": "***", "spark.x": "y"}


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        ({"queue": "q"}, "unknown extras: queue. .* into conf"),
        ({"conf": '{"spark.x": "y"}'}, "conf that is not a JSON object.*in a URI .* __extra__"),
        ({"conf": {"fs.s3a.endpoint": "y"}}, "name 'fs.s3a.endpoint', which Spark ignores"),
        ({"conf": {"spark.x": ["y"]}}, r"^conf\['spark.x'\] in the extra of the connection 'lake' must be a string"),
        (
            {"conf": {"spark.submit.deployMode": "cluster"}},
            "^conf in the extra of the connection 'lake' can't set spark.submit.deployMode. Set deploy-mode",
        ),
        ({"jars": ["/a.jar"]}, "jars that is not a string"),
        ({"namespace": 7}, "namespace that is not a string"),
    ],
    ids=readable,
)
def test_what_is_not_understood_is_an_error(define: Define, extra: dict[str, Any], sentence: str) -> None:
    define(extra)
    with pytest.raises(SparkConnectionError, match=sentence):
        settings()
    with pytest.raises(DeltaMergeException, match=sentence):
        _ = DeltaMergeHook(conn_id="lake").settings


@pytest.mark.parametrize("extra", [["keep_warm"], 7, "{'allowed_locations': ['/lake']}"], ids=readable)
@pytest.mark.parametrize("conn_id", ["lake", "spark_default"])
def test_an_extra_that_is_no_object_is_an_error(monkeypatch: pytest.MonkeyPatch, conn_id: str, extra: Any) -> None:
    connection = {"conn_type": "delta_merge", "host": "yarn", "extra": extra}
    monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(connection))
    with pytest.raises(SparkConnectionError, match=f"'{conn_id}' has an extra that is not a JSON object"):
        find_connection(conn_id)
    with pytest.raises(StoreAccessError, match="not a JSON object"):
        S3Access.of(conn_id)


def test_a_uri_with_an_underscore_has_no_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", "delta_merge://yarn?namespace=staging")
    with pytest.raises(SparkConnectionError, match=r"'lake' has no type\..* a URI begins with delta-merge://"):
        find_connection("lake")
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", "delta-merge://yarn?namespace=staging")
    assert settings().namespace == "staging"


FIELDS = (
    *("deploy-mode", "result_path", "yarn_resourcemanager_webapp_address"),
    *("jars", "conf", "aws_conn_id", "azure_conn_id", "gcp_conn_id", "s3_single_writer"),
    *("keep_warm", "namespace", "history_server_url", "commit_url", "kubernetes_conn_id", "spark_operator"),
)


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        ({"spark-binary": "/evil"}, "'lake' has an invalid extra: .*spark-binary"),
        ({"keytab": "abcde", "principal": "etl@LAKE"}, "'lake' has a keytab that is not base 64"),
        ({"deploy-mode": "Cluster"}, "'lake' has the deploy-mode 'Cluster'. Set it to client or cluster"),
        ({"allowed_locations": "/lake"}, "allowed_locations in the extra .* must be a list of strings"),
    ],
    ids=readable,
)
def test_the_extra_of_a_spark_connection_is_checked_by_merge_and_test(
    define: Define, extra: dict[str, Any], sentence: str
) -> None:
    """Airflow's hook ignores a keytab that it can't decode, and has bare errors for others."""
    define(extra, conn_type="spark")
    with pytest.raises(DeltaMergeException, match=sentence):
        DeltaMergeHook(conn_id="lake").merge(CONFIG)
    good, said = DeltaMergeHook(conn_id="lake").test_connection()
    assert not good
    assert re.search(sentence, said)


def test_a_malformed_address_of_yarn_is_a_sentence(define: Define) -> None:
    resource_manager = {"yarn_resourcemanager_webapp_address": "http://[rm"}
    define({"deploy-mode": "cluster", "result_path": "file:///results", **resource_manager}, host="yarn")
    good, said = DeltaMergeHook(conn_id="lake").test_connection()
    assert (good, "doesn't answer at http://[rm (Invalid IPv6 URL)" in said) == (False, True)


def test_only_its_user_reads_the_keytab_of_a_connection(
    define: Define, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    define({"keytab": "a2V5", "principal": "etl@LAKE"}, conn_type="spark", host="yarn")
    for _ in range(2):
        command = SparkSubmit(conn_id="lake").arguments
        keytab = Path(command[command.index("--keytab") + 1])
        assert (keytab.read_text(), keytab.stat().st_mode & 0o777) == ("key", 0o600)
        keytab.chmod(0o644)  # as an earlier release saved it


def test_empty_form_fields_are_ignored(define: Define) -> None:
    for nothing in ("", None):
        define(dict.fromkeys(FIELDS, nothing))
        assert settings() == ConnectionSettings()
        command = SparkSubmit(conn_id="lake")._build_spark_submit_command("job.py")
        assert command[command.index("--deploy-mode") + 1] == "client"


@pytest.mark.parametrize("scheme", ["delta-merge", "spark"])
def test_a_uri_has_numbers_and_flags_as_texts(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    fields = "keep_warm=90.5&s3_single_writer=true&aws_conn_id=none&s3a_jars=False"
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", f"{scheme}://local%5B2%5D?{fields}")
    found = settings()
    assert (found.keep_warm, found.s3_single_writer, found.store_drivers) == (90.5, True, ())
    assert SparkSubmit(conn_id="lake").master == "local[2]"
    for field, sentence in (("keep_warm=soon", "not a number of seconds"), ("s3a_jars=1", "not a boolean")):
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", f"{scheme}://local%5B2%5D?{field}")
        with pytest.raises(SparkConnectionError, match=sentence):
            settings()


def test_sparks_own_script_finds_spark_whatever_python_the_cluster_has(
    define: Define, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", "./environment/bin/python")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    define({}, host="local[1]")
    environment = SparkSubmit(conn_id="lake").environment()
    script = ["spark-submit", "--version"]
    assert (Path(environment["SPARK_HOME"]) / "bin" / "spark-class").is_file()
    assert "PYSPARK_DRIVER_PYTHON" not in environment
    told = subprocess.run(script, env=environment, capture_output=True, text=True, check=True)
    assert "version 4." in told.stderr


@pytest.mark.parametrize(("given", "passed"), [("C", "C.UTF-8"), ("POSIX", "C.UTF-8"), ("de_DE.UTF-8", "de_DE.UTF-8")])
def test_java_can_open_files_with_any_name(
    define: Define, monkeypatch: pytest.MonkeyPatch, given: str, passed: str
) -> None:
    monkeypatch.setenv("LC_ALL", given)
    define({}, host="local[1]")
    assert SparkSubmit(conn_id="lake").environment()["LC_ALL"] == passed


def test_a_spark_connection_keeps_its_own_meaning(define: Define) -> None:
    extra = {"namespace": "of-kubernetes", "conf": "its own", "queue": "q", "commit_url": "https://catalog.example"}
    define(extra, conn_type="spark", host="yarn")
    assert settings() == ConnectionSettings(commit_url="https://catalog.example")
    command = SparkSubmit(conn_id="lake")._build_spark_submit_command("job.py")
    assert command[command.index("--queue") + 1] == "q"


@pytest.mark.parametrize("conn_type", ["spark", "delta_merge"])
def test_a_conf_that_a_spark_connection_cannot_have_is_warned_of(
    define: Define, caplog: pytest.LogCaptureFixture, conn_type: str
) -> None:
    define({"conf": {"spark.x": "y"}, "jars": "/a.jar", "namespace": "n"}, conn_type=conn_type)
    settings()
    warned = "extra of the connection 'lake', whose type is spark: conf, jars. Set the type to delta_merge, or remove"
    assert (warned in caplog.text) == (conn_type == "spark")


@pytest.mark.parametrize(("conn_type", "namespace"), [("delta_merge", "of-connection"), ("spark", "of-configuration")])
def test_the_namespace_of_a_merge(
    define: Define, monkeypatch: pytest.MonkeyPatch, conn_type: str, namespace: str
) -> None:
    """Of a Spark connection it is Kubernetes'."""
    seen: list[str] = []

    def merge(self: DeltaMergeHook, *_: Any, identity: Any, **__: Any) -> MergeResult:
        seen.append(identity.application_id)
        return MergeResult(table="t", version_read=0, version=None, executor="", executor_reason="")

    monkeypatch.setattr(DeltaMergeHook, "merge", merge)
    monkeypatch.setenv("AIRFLOW__DELTA_MERGE__NAMESPACE", "of-configuration")
    define({"namespace": "of-connection"}, conn_type=conn_type)
    DeltaMergeOperator(task_id="merge", conn_id="lake", **GOOD).execute(context())  # type: ignore[arg-type]
    assert seen == [f"airflow:{namespace}/d/t/r/-1"]


def what_the_test_says(monkeypatch: pytest.MonkeyPatch, **parts: Any) -> tuple[bool, str]:
    """What the button in Airflow's UI says: it hands the connection over as a URI."""
    from airflow.models.connection import Connection

    connection = Connection(conn_id="of_the_test", conn_type="delta_merge", **parts)
    monkeypatch.setenv("AIRFLOW_CONN_OF_THE_TEST", connection.get_uri())
    good, said = connection.test_connection()
    print(said)
    return good, said


def test_test_of_a_local_master(monkeypatch: pytest.MonkeyPatch) -> None:
    good, said = what_the_test_says(monkeypatch, host="local[*]", extra=json.dumps({"conf": CONF, "jars": "/a.jar"}))
    assert good
    assert "Java 17" in said or "Java 21" in said
    assert "spark-submit and Delta's jars. With the master local[*], Spark runs on the worker itself." in said
    assert "Not tested: whether Spark starts, the properties in conf, the additional jars, and the machines of" in said
    assert "s3cr3t" not in said


def test_test_of_a_master_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        master = f"spark://127.0.0.1:{server.getsockname()[1]}"
        assert f"A master answers at {master}." in what_the_test_says(monkeypatch, host=master)[1]
    good, said = what_the_test_says(monkeypatch, host=master)
    assert not good
    assert f"No Spark master answers at {master}" in said


def test_the_connection_test_does_not_contact_yarn(monkeypatch: pytest.MonkeyPatch) -> None:
    good, said = what_the_test_says(monkeypatch, host="yarn")
    assert good
    assert "The master yarn was not contacted." in said


def test_test_without_java(monkeypatch: pytest.MonkeyPatch, no_java: None) -> None:
    good, said = what_the_test_says(monkeypatch, host="local[*]")
    assert not good
    assert "Install Java 17 or 21" in said


def test_test_of_what_is_not_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "unknown extras: queue" in what_the_test_says(monkeypatch, host="yarn", extra='{"queue": "q"}')[1]


def test_the_connection_test_finds_an_address_for_missing_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_delta_merge.runtime import jars
    from airflow_delta_merge.runtime.spark_home import SparkHome

    missing = tmp_path / "jars"
    monkeypatch.setenv(jars.FOLDER_VARIABLE, str(missing))
    first = jars.jars_for(SparkHome.of())[0].artifact
    mirrored = tmp_path / "io" / "delta" / first / jars.DELTA_VERSION / f"{first}-{jars.DELTA_VERSION}.jar"
    mirrored.parent.mkdir(parents=True)
    mirrored.touch()
    monkeypatch.setenv(jars.MAVEN_VARIABLE, tmp_path.as_uri())
    good, said = what_the_test_says(monkeypatch, host="local[*]")
    assert good
    assert "a URL with Delta's jars" in said
    monkeypatch.setenv(jars.MAVEN_VARIABLE, "file:///nowhere")
    good, said = what_the_test_says(monkeypatch, host="local[*]")
    assert not good
    assert "Without network, copy the file" in said
    assert not missing.exists(), "a test fetches nothing"


def test_airflow_knows_the_type_and_its_form() -> None:
    from airflow.api_fastapi.core_api.services.ui.connections import HookMetaService
    from airflow.providers_manager import ProvidersManager

    found = ProvidersManager().hooks["delta_merge"]
    assert found is not None
    assert (found.hook_name, found.connection_testable) == ("Delta Merge", True)
    (form,) = [form for form in HookMetaService.hook_meta_data() if form.connection_type == "delta_merge"]
    fields = form.standard_fields
    assert fields is not None
    assert (fields.host.title, fields.host.placeholder[:8]) == ("Master", "local[*]")
    assert all(hidden.hidden for hidden in (fields.port, fields.url_schema, fields.login, fields.password))
    assert form.extra_fields is not None
    assert set(form.extra_fields) == set(FIELDS)
    assert form.extra_fields["conf"]["schema"]["type"] == ["object", "null"]
