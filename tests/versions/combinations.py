"""The combinations of Spark and Delta on which ``make test-versions`` runs the marked differential cases."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_delta_merge.runtime.jars import Jar


@dataclass(frozen=True)
class Combination:
    """A release of PySpark with one of Delta.

    :param spark: the version of PySpark, as PyPI has it.
    :param delta: the version of Delta's jars, as Maven Central has them.
    :param artifact: the artifact of Delta that is made for this Spark and its Scala.
    :param sha256: of its jar.
    :param is_tried: whether our engine supports it. If not, our engine must refuse, and Delta's ``MERGE`` must run.
    """

    spark: str
    delta: str
    artifact: str
    sha256: str
    is_tried: bool = True

    @property
    def name(self) -> str:
        """How ``--only`` names it: both minor versions."""
        return "-".join(version.rsplit(".", 1)[0] for version in (self.spark, self.delta))

    @property
    def scala(self) -> str:
        """The version of Scala; PyPI's PySpark of a version has one only."""
        return self.artifact.rsplit("_", 1)[1]

    @property
    def jars(self) -> list[Jar]:
        """Delta's jars that this Spark lacks."""
        others = SHA256_OF_OTHER_JARS[self.delta]
        return [Jar("io.delta", name, self.delta, sha256) for name, sha256 in ((self.artifact, self.sha256), *others)]


COMBINATIONS = (
    Combination(
        "3.5.9",
        "3.2.1",
        "delta-spark_2.12",
        "088e187da689a347a6a8556dcb22318e3dfcfb995d807f5e2c19b4d0a7ee9499",
        is_tried=False,
    ),
    Combination(
        "3.5.9", "3.3.3", "delta-spark_2.12", "4912bf902a1c453aba3bd838ff212dedd357155212f9bb37a6b47d97f2827ebc"
    ),
    Combination(
        "4.0.5", "4.0.1", "delta-spark_2.13", "a1e76860b19fe1e6b205a4ea7a9099a2f9575d39bb71d49b3e679b299d0efb91"
    ),
    Combination(
        "4.0.5", "4.4.0", "delta-spark_4.0_2.13", "49e899667168b9412f83cbe894ce264107d7b896d6c5e12edca4e216845c1104"
    ),
    Combination(
        "4.1.4", "4.1.0", "delta-spark_4.1_2.13", "9b05d7a82196ee1f1073733a45a2faae59161e52b86ae918fe6742fad6eaf036"
    ),
    Combination(
        "4.1.4", "4.2.0", "delta-spark_4.1_2.13", "8480050a55c7e50427f3bec3af9243f98fc7cbfa453a2ef55e6ea8d0b7b121ff"
    ),
    Combination(
        "4.1.4", "4.3.1", "delta-spark_4.1_2.13", "ebf35a4383f0a653c3ee3c7882c0edcac2f846be31ac61af4b96ccfaaf36c171"
    ),
    Combination(
        "4.1.4", "4.4.0", "delta-spark_4.1_2.13", "75a9400986853c061f5109f012547de2545a5759e5e752e5ef633dabe16a4f10"
    ),
    Combination(
        "4.2.0", "4.4.0", "delta-spark_4.2_2.13", "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead"
    ),
)

SHA256_OF_OTHER_JARS = {
    "3.2.1": (("delta-storage", "4dcc179fc4076bda5060a4038f979c53e1f5916cf04971e28f9441db390763c7"),),
    "3.3.3": (("delta-storage", "45ad193053fd30cebe6d9ab1889873cde39b223a0f210e00ebee8b6642476901"),),
    "4.0.1": (("delta-storage", "ecc42c5aaa51c423312d9e4e48aa4a12b34740bf2c37de0e8f279277ec3d12e4"),),
    "4.1.0": (("delta-storage", "6d0520ffcc35b582369f92c23fa24e14a5bb935cf6e31ed7f47c5046ae17cb25"),),
    "4.2.0": (
        ("delta-storage", "2d84df76551f2b3cd27b120abec67ccbba324cea6ec45eb659edcc54234f99f3"),
        ("delta-kernel-api", "7c5e742192794b069ac64fb40ab0933e1a70d27f1f32805bdd8c06af1d4df012"),
        ("delta-kernel-defaults", "ce6cfcde63a1642fc71b836b90a4056b9b8c90d22fb66e8d103bf33f750419c7"),
    ),
    "4.3.1": (
        ("delta-storage", "577c12c7e371be4c041714fb48e88ad86e3c3512beea2bdaffbe7a4debf79718"),
        ("delta-kernel-api", "b081b818d6f5686c7d6406588af72c9f8baf6765a41ada8197364aef90a260e8"),
        ("delta-kernel-defaults", "27471cca7dd7a36289af2c8d52d2babb37e9e5a13cdaaea76730120f4c72e62f"),
    ),
    "4.4.0": (
        ("delta-storage", "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc"),
        ("delta-kernel-api", "ee9b5a14ac3b7efdff4d61a58478fe8eb0e5a3fbca43889dca7290795fe79a11"),
        ("delta-kernel-defaults", "225c975199e4718b38ee5b7e6da7f19e9585024262b2cec2656b32151a856b0b"),
    ),
}
