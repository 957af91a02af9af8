"""The test of a connection, without Spark: whether this machine has what a merge needs."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from airflow_delta_merge.exceptions import DeltaMergeError
from airflow_delta_merge.launch.cluster_mode import check_cluster_mode
from airflow_delta_merge.runtime.jars import have_delta_jars
from airflow_delta_merge.runtime.java import check_java

if TYPE_CHECKING:
    from airflow_delta_merge.launch.preparation import Preparation


def connection_test(preparation: Preparation) -> tuple[bool, str]:
    """Check this machine, and the cluster if Spark's driver runs there.

    :return: whether all is there, and sentences about what was found, is missing, or was not tested.
    """
    here = socket.gethostname()
    try:
        settings = preparation.settings
        preparation.policy.check_conf(preparation.conf)
        submit = preparation.for_inspection()
        if submit.is_cluster:
            check_cluster_mode(preparation.conn_id, submit.master, settings)
        java, version = check_java()
        binary = submit.find_binary()
        there = have_delta_jars(submit.spark_home)
        jars = "Delta's jars" if there else "a URL with Delta's jars"
        for driver in settings.store_drivers:
            there = driver.are_there(submit.spark_home)
            jars += f" and {'' if there else 'a URL with '}the {driver.name} driver's"
        of_stores = preparation.store_properties
        submit.check_master()
        if submit.is_cluster:
            preparation.check_cluster(submit)
    except DeltaMergeError as error:
        return False, f"{error} (Tested on {here}.)"
    untested = ["whether Spark starts"]
    if submit.is_local:
        master = f"With the master {submit.master}, Spark runs on the worker itself."
    elif submit.master.startswith("spark://"):
        master = f"A master answers at {submit.master}."
    else:
        master = f"The master {submit.master} {'answers' if submit.is_cluster else 'was not contacted'}."
    if settings.conf:
        untested.append("the properties in conf")
    if of_stores:
        untested.append("whether the stores accept their connections")
    if settings.jars:
        untested.append("the additional jars")
    return True, (
        f"Found on {here}: Java {version} ({java}), {binary} and {jars}. {master} Not tested: "
        f"{', '.join(untested)}, and the machines of other workers."
    )
