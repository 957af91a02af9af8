"""Spark's drivers for object stores. Their jars are downloaded once and verified, like Delta's.

Hadoop's own drivers, S3A and ABFS, must have exactly the version of PySpark's Hadoop.

The POM of ``hadoop-aws`` depends on the AWS SDK as one ``bundle`` of 686 MB, which has every AWS service, and which a
cluster's executors would download again for each merge. This list has instead the SDK's modules for S3 and STS, in the
POM's version, and their dependencies that Spark lacks: 13 MB. All classes that ``hadoop-aws`` and these modules refer
to are included or in Spark, except those of unused features: client-side encryption, S3 Access Grants, the native
client (CRT), and credential providers of the SDK's first version. A test checks each class.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_delta_merge.exceptions import DeltaJarsError
from airflow_delta_merge.runtime.jars import Jar, fetched, have
from airflow_delta_merge.runtime.spark_home import SparkHome

HADOOP_VERSION = "3.5.0"
AWS_SDK_VERSION = "2.35.4"

_SHA256_OF_AWS_SDK_MODULE = {
    "annotations": "6f36bd87155d1dd85d6efbdd29e532e3759a022211feb71affebee1aa34f04b8",
    "apache-client": "6eade21b482724ed0a4613eaa95d20e47e7a81304bd28538ac427fece94a7740",
    "arns": "c63cc29f76a8527e9e10b621703163df541dc5cb315508dc2898518602c75380",
    "auth": "6b601323004833fb4a857ffc95db4795e0e6320eb93e64b1246c655c9ff04994",
    "aws-core": "fdb5fc8f1a48d97fa7d04d3460fb42f6973c7b1bbe1b9d317871ef0162bcb623",
    "aws-query-protocol": "9b4cf9b78977cc9f5b4ceae9c435dedbde6a055a0f8d9e053eaca945715e2a9f",
    "aws-xml-protocol": "4f59176da2522c357b1993e4a890fde529f12f365795ef86269bde4a3984cd0d",
    "checksums": "94464af4374d08ecf33ca06ed4d03e1615529e547726e26b56abacefbeee7948",
    "checksums-spi": "88b5af85ac2d3c862be8856be4e683ab31932e4a5a3c1c45af864d2671ac7cec",
    "crt-core": "2c6aaa17bf9ccbb9d962dded4351e73decb197e3c5519970e0dae17e05d3df62",
    "endpoints-spi": "ef02441bda916959b8341290b49c68cc35538e1ad6f8629b75d8334dc6653e00",
    "http-auth": "3ec933a06e751a05e195eb3589209e23c44e1897263b6fcae34ef4cc63cd4491",
    "http-auth-aws": "c4acb92fdec90bfd9b67bfab8e41b69cd152c03cacc10281a8ab464791856e01",
    "http-auth-aws-eventstream": "709107552f302be3fa9e05969a3779f5c0f07fb809e6fa1fa571a6f0c61326dd",
    "http-auth-spi": "4495463406bb98eb136f2c3f3604ed5f08ec9974ebc3f34f2121b20679f61d5c",
    "http-client-spi": "728be89b2a07b595edb0adee3a2cbbbdd4cb1f4caddde0d08c3979fe2620dedb",
    "identity-spi": "188d73db7d4e2361654bc3c5a1b3eaeb445d0500fb012cc46c5d67975adf97bf",
    "json-utils": "80d67a6bb3e7eb49c7d4b6e4ba4c1463ed7da0192b795158328602dc131c5ecc",
    "metrics-spi": "c2a4ee90a21081317e2e6eba0c414d05d3d518aed2f86b1c1710a7367b450487",
    "netty-nio-client": "b82f8b33e5c85273a47da45ede884d7ccb31c9c2f69e6910a76c5c48fa1275dc",
    "profiles": "0f4ef7ca72ccd80dd49ebeaf7f3ce60a7d7a00da59a91aeeae6e91052bbacbd8",
    "protocol-core": "f2532eca6ba2142fe4821d5decb03c83a3e15dc8bfae2240e7f2efa75f9868b5",
    "regions": "77eae87b34ce96ecdf916a9bc06684dbeafcb6d38ef0513285fa5d5d6d41f5ca",
    "retries": "f99fb2f8c66d7e859955b3542d3af8f9de8f23a21d5e3250f0f2c5f18487e469",
    "retries-spi": "668638751d059c527ddd41ffa4dcebe36a7c14860ed56776df09b861c14dc7dd",
    "s3": "f23532c5223be9b0bfec0d72837ed09ed34dbdf8022818ba145b20076a78b4bc",
    "s3-transfer-manager": "0eec78870b3d0abc509a847072cf963cb2ae6e360dc6161a9449b3398c470476",
    "sdk-core": "fa559a4ce598852f3519c8f3b36250f583b0858a7611eedc4a81997778c617f4",
    "sts": "8d0f7816d3f96e3f00249f5d054d926e939a104bcf9ef57676ee0b16c59684d2",
    "third-party-jackson-core": "32f4252c6c2df8f3a4aff885e6dc77024ad6b4cb48455d07b461ec30c41643ea",
    "utils": "642aeef536a071668f0b772f05f9d21573abf6955e7b6fb5fdb893760cca10e8",
    "utils-lite": "e004806def5e22ec98edc48a133ff3317166255e1ba29d93d129e9fdfa64a7be",
}

_S3A_JARS = (
    Jar(
        "org.apache.hadoop",
        "hadoop-aws",
        HADOOP_VERSION,
        "66bd9eefb938b1a1657487324b63c13df2d8b17164a1dd24e0ef37b905bc5baa",
    ),
    Jar(
        "org.reactivestreams",
        "reactive-streams",
        "1.0.4",
        "f75ca597789b3dac58f61857b9ac2e1034a68fa672db35055a8fb4509e325f28",
    ),
    Jar(
        "software.amazon.eventstream",
        "eventstream",
        "1.0.1",
        "0c37d8e696117f02c302191b8110b0d0eb20fa412fce34c3a269ec73c16ce822",
    ),
    Jar(
        "software.amazon.s3.analyticsaccelerator",
        "analyticsaccelerator-s3",
        "1.3.1",
        "4959a9747cbb479c73c3ffbcd479bee5b014f8b2880994585a8693fb9d24675e",
    ),
    *(
        Jar("software.amazon.awssdk", module, AWS_SDK_VERSION, sha256)
        for module, sha256 in _SHA256_OF_AWS_SDK_MODULE.items()
    ),
)

_ABFS_JARS = (
    Jar(
        "org.apache.hadoop",
        "hadoop-azure",
        HADOOP_VERSION,
        "220b5db238b82437960e4b81c7e3eefa4eff2a03ad502887497f11d0ad86e663",
    ),
    Jar(
        "com.microsoft.azure",
        "azure-storage",
        "7.0.1",
        "32249cf9b550e247e257c0a508f93526d35e072509aa637fd33b3d54e267b1e2",
    ),
    Jar(
        "com.microsoft.azure",
        "azure-keyvault-core",
        "1.0.0",
        "d8c6ca5bc1c50fd2c74d81b8731b67aa72fa5c9e086623439ba4e950138937a0",
    ),
    Jar(
        "org.wildfly.openssl",
        "wildfly-openssl",
        "2.1.4.Final",
        "95decbc5d088b40e85f58d7726b8c8f4e3be6312a0f2660c2d714a23cee80279",
    ),
    Jar(
        "org.hdrhistogram",
        "HdrHistogram",
        "2.1.12",
        "9b47fbae444feaac4b7e04f0ea294569e4bc282bc69d8c2ce2ac3f23577281e2",
    ),
)

# Not version 3 or 4: they accept a service account's key only as a file, which each executor's machine would need.
_GCS_JARS = (
    Jar(
        "com.google.cloud.bigdataoss",
        "gcs-connector",
        "hadoop3-2.2.33",
        "cd47e5ef4d18a97576e0421b74812b87b2cb0d580c59bbc7113f5f526d46e48b",
        classifier="shaded",
    ),
)


@dataclass(frozen=True)
class StoreDriver:
    """A driver for one kind of object store.

    :param name: its name.
    :param jars: its jars, the driver itself first.
    :param flag: the field of a Spark connection that turns its jars on or off.
    :param of_hadoop: whether it must have the version of Spark's Hadoop.
    """

    name: str
    jars: tuple[Jar, ...]
    flag: str
    of_hadoop: bool = True

    def fetched(self, spark: SparkHome | None = None) -> list[str]:
        """The absolute paths of its jars; downloads missing or damaged ones first.

        :param spark: the installation of Spark; by default the one that spark-submit starts here.
        :raises DeltaJarsError: when a jar is missing and can't be downloaded (the message says what to do), or the jars
            don't fit Spark's Hadoop.
        """
        self._require_hadoop(spark or SparkHome.of())
        return fetched(self.jars)

    def are_there(self, spark: SparkHome | None = None) -> bool:
        """Whether all of its jars are on this machine. If not, checks that the first missing one can be downloaded.

        :param spark: as for :meth:`fetched`.
        :raises DeltaJarsError: when it can't be downloaded, or the jars don't fit Spark's Hadoop.
        """
        self._require_hadoop(spark or SparkHome.of())
        return have(self.jars)

    def _require_hadoop(self, spark: SparkHome) -> None:
        if self.of_hadoop and spark.hadoop not in (None, HADOOP_VERSION):
            driver = self.jars[0]
            raise DeltaJarsError(
                f"The {self.name} driver of this package is for Hadoop {HADOOP_VERSION} (Spark 4.2), but Spark "
                f"{spark.version} in {spark.path} has Hadoop {spark.hadoop}. Set {self.flag} to false in the "
                f"connection's extra, and add {driver.group}:{driver.artifact}:{spark.hadoop} to packages."
            )


S3A = StoreDriver("S3A", _S3A_JARS, "s3a_jars")
ABFS = StoreDriver("ABFS", _ABFS_JARS, "azure_jars")
GCS = StoreDriver("Google", _GCS_JARS, "gcs_jars", of_hadoop=False)
