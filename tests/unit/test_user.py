"""Users that the system doesn't know, as in containers with arbitrary user ids."""

from __future__ import annotations

import os

import pytest

from airflow_delta_merge.exceptions import DeltaJarsError
from airflow_delta_merge.runtime.jars import FOLDER_VARIABLE, jars_folder
from airflow_delta_merge.runtime.user import user_name

UNKNOWN = 1_234_567_890


@pytest.fixture
def unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process's user be one without an entry in /etc/passwd."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME", "HOME", FOLDER_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: UNKNOWN)


def test_a_user_without_a_name_is_called_by_the_number(unknown: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert user_name() == str(UNKNOWN)
    monkeypatch.setenv("USER", "ada")
    assert user_name() == "ada"


def test_a_user_without_a_home_needs_a_folder_for_jars(unknown: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeltaJarsError, match=f"HOME is not set.* Set the environment variable {FOLDER_VARIABLE}"):
        jars_folder()
    monkeypatch.setenv(FOLDER_VARIABLE, "/opt/jars")
    assert str(jars_folder()) == "/opt/jars"
