"""The two-phase merge engine for Delta tables: the same results as Delta's MERGE, from our own plans.

It is shipped to clusters as a py-file, so it imports only the standard library, pyspark and py4j.
"""

from __future__ import annotations

from airflow_delta_merge.engine.api import merge, merge_sql, plan

__all__ = ["merge", "merge_sql", "plan"]
