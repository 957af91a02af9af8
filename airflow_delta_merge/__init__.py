"""Airflow provider that upserts into Delta tables through its own two-phase merge engine on PySpark.

Importing the package is cheap: it has only the version, so that parsing a DAG imports nothing heavy.
"""

from __future__ import annotations

__version__ = "0.1.0"
