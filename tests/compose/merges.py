"""Checks of what the composition is there for: merges run, once each, whatever is restarted or killed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from tests.compose.airflow_api import Airflow
from tests.compose.composition import Composition
from tests.compose.machine import ROOT, CheckError

#: The runs of the examples: those that the scheduler makes by itself (None), else the logical date of one by hand.
EXAMPLES: dict[str, str | None] = {
    "flights_daily_upsert": None,
    "planes_in_s3": None,
    "weather_of_a_day": "2013-03-10T12:00:00Z",
    "flights_changes": "2013-06-15T12:00:00Z",
    "planes_carriers": "2013-04-10T12:00:00Z",
    "planes_first_seen": "2013-02-10T12:00:00Z",
    "planes_in_service": "2013-02-10T12:00:00Z",
}
_RUNS_BY_ITSELF = {"flights_daily_upsert": 3, "planes_in_s3": 2}
_COUNTED = ("counted", "counted_deferred")
_WORK = 20_000  # about half a minute of merging, on two cores
_BY_HAND = "by_hand"
_SECONDS_TO_RUN = 1200


class Merges:
    """The merges of a composition that runs.

    :param composition: the services.
    """

    def __init__(self, composition: Composition) -> None:
        self._composition = composition
        self._airflow = Airflow(composition.ports["AIRFLOW_PORT"], composition.secrets["AIRFLOW_ADMIN_PASSWORD"])
        self._runs = dict.fromkeys(_COUNTED, 0)

    def examples(self) -> str:
        """All example DAGs run green."""
        examples = {path.stem for path in (ROOT / "dags").glob("*.py") if "@dag(" in path.read_text()}
        if examples != set(EXAMPLES):
            raise CheckError(f"The check knows {sorted(EXAMPLES)}, and dags/ has {sorted(examples)}.")
        self._wait_for(lambda: self._airflow.dags() == {*EXAMPLES, *_COUNTED}, "the DAGs to be loaded")
        for dag_id, logical_date in EXAMPLES.items():
            self._airflow.unpause(dag_id)
            if logical_date:
                self._airflow.trigger(dag_id, _BY_HAND, logical_date=logical_date)
        runs = 0
        for dag_id, logical_date in EXAMPLES.items():
            expected = 1 if logical_date else _RUNS_BY_ITSELF[dag_id]
            self._wait_for(lambda dag_id=dag_id, n=expected: self._have_ended(dag_id, n), f"the runs of {dag_id}")
            for run_id in self._airflow.runs(dag_id):
                self._airflow.wait_for_run(dag_id, run_id)
                runs += 1
        return f"{len(EXAMPLES)} DAGs, {runs} runs"

    def tables(self) -> str:
        """The examples' tables hold what pandas makes of the same data."""
        tables = self._look("examples")
        if wrong := {name: table["differing"] for name, table in tables.items() if table["differing"]}:
            raise CheckError(f"Tables differ from what is expected: {wrong}")
        return f"{len(tables)} tables, {sum(table['rows'] for table in tables.values()):,} rows"

    def deferred(self) -> str:
        """A deferred merge is followed by the triggerer, and its task's worker slot is free meanwhile."""
        self._start("counted_deferred")
        run_id = self._run_id("counted_deferred")
        self._wait_for(lambda: self._merge("counted_deferred")["state"] == "deferred", "the merge to be deferred")
        triggerer = self._merge("counted_deferred")["triggerer_job"]
        self._wait_for(lambda: self._merge("counted_deferred")["state"] != "deferred", "the deferred merge")
        self._airflow.wait_for_run("counted_deferred", run_id)
        self._check_counts("counted_deferred")
        return f"deferred, then resumed by a triggerer (job {(triggerer or {}).get('id')})"

    def merge(self, dag_id: str = "counted") -> None:
        """One more merge; every row counts it once."""
        self._start(dag_id)
        self._airflow.wait_for_run(dag_id, self._run_id(dag_id))
        self._check_counts(dag_id)

    def restarts(self) -> str:
        """Each service is healthy again after a restart, and a merge works."""
        for service in self._composition.running:
            self._composition.compose("restart", service)
            self._composition.wait_until_healthy(*self._composition.running)
            self.merge()
        return f"{len(self._composition.running)} services, a merge after each"

    def down_and_up(self) -> str:
        """Tables and Airflow's runs are the same after `down` and `up`."""
        before = self._everything()
        self._composition.down()
        self._composition.up()
        if (after := self._everything()) != before:
            raise CheckError(f"Before `down` there was {before}, after `up` {after}.")
        self.merge()
        return f"{len(before['tables'])} tables, {sum(map(len, before['runs'].values()))} runs kept; a merge after"

    def killed(self, service: str, dag_id: str = "counted") -> str:
        """A service killed in mid-merge comes back, and the merge has its effect once."""
        self._start(dag_id, work=_WORK)
        self._wait_for(lambda: self._is_half_way(dag_id), "the merge to be half way")
        self._composition.kill_inside(service)
        if self._look(dag_id)["merges"] >= self._runs[dag_id]:
            raise CheckError("The merge had committed before the kill: raise the work of the check's DAG.")
        self._composition.wait_until_healthy(*self._composition.running)
        self._airflow.wait_for_run(dag_id, self._run_id(dag_id))
        self._check_counts(dag_id)
        return f"once, by try {self._merge(dag_id)['try_number']}"

    def _start(self, dag_id: str, *, work: int = 1) -> None:
        self._runs[dag_id] += 1
        self._airflow.trigger(dag_id, self._run_id(dag_id), conf={"work": work})

    def _run_id(self, dag_id: str) -> str:
        return f"run_{self._runs[dag_id]}"

    def _merge(self, dag_id: str) -> dict[str, Any]:
        return self._airflow.merge(dag_id, self._run_id(dag_id))

    def _is_half_way(self, dag_id: str) -> bool:
        """Whether matches are found and the rows are being written."""
        return "Searching" in self._airflow.log(dag_id, self._run_id(dag_id), 1)

    def _check_counts(self, dag_id: str) -> None:
        runs = self._runs[dag_id]
        found = self._look(dag_id)
        if found["counts"] != [runs] or found["merges"] != runs:
            raise CheckError(f"After {runs} runs of {dag_id} its table is {found}.")

    def _have_ended(self, dag_id: str, expected: int) -> bool:
        states = list(self._airflow.runs(dag_id).values())
        return "failed" in states or (len(states) >= expected and set(states) == {"success"})

    def _everything(self) -> dict[str, Any]:
        examples = self._look("examples")
        tables = examples | {dag_id: self._look(dag_id) for dag_id in _COUNTED}
        return {"tables": tables, "runs": {dag_id: self._airflow.runs(dag_id) for dag_id in [*EXAMPLES, *_COUNTED]}}

    def _look(self, what: str) -> dict[str, Any]:
        script = Path(__file__).with_name("tables.py").read_text()
        printed = self._composition.run_inside("airflow-scheduler", "python", "-", what, text=script)
        return dict(json.loads(printed))

    def _wait_for(self, condition: Any, what: str) -> None:
        deadline = time.monotonic() + _SECONDS_TO_RUN
        while not condition():
            if time.monotonic() > deadline:
                raise CheckError(f"Waited {_SECONDS_TO_RUN} s for {what}, in vain.")
            time.sleep(1)
