"""The only package that uses py4j: every class, constructor and ``MODULE$`` of Spark and Delta is accessed here.

The rest of the engine sees DataFrames, Columns and plain Python values. It passes JVM objects from here (file
sequences, metadata) back without looking inside. This code follows the sources of Delta 4.4 and Spark 4.2;
:mod:`~airflow_delta_merge.engine.delta_jvm.by_version` has the differences of other versions.
"""
