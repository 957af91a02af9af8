"""Where the driver's Python finds pyspark and py4j."""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from pathlib import Path


def prefer_installed_pyspark() -> None:
    """Import pyspark and py4j from where pip has installed them, if that is the Spark that runs this.

    spark-submit puts zips of both first into ``sys.path``. Python compiles what it imports from a zip each time, these
    for half a second. With a Spark that pip has not installed, the path stays.
    """
    for entry in [*sys.path]:
        archive = Path(entry)
        if archive.parts[-4:-1] != ("pyspark", "python", "lib"):
            continue
        site_packages = archive.parents[3]
        package, _, version = archive.name.removesuffix(".zip").removesuffix("-src").partition("-")
        others = [other for other in sys.path if other != entry]
        found = PathFinder.find_spec(package, others)
        is_installed = found is not None and found.origin == str(site_packages / package / "__init__.py")
        if is_installed and (not version or (site_packages / f"{package}-{version}.dist-info").is_dir()):
            sys.path.remove(entry)
