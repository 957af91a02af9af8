package airflow_delta_merge.log_store;

import java.io.IOException;
import java.util.UUID;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.s3a.S3AFileSystem;
import org.apache.hadoop.fs.s3a.S3AUtils;
import org.apache.hadoop.fs.s3a.impl.PutObjectOptions;
import software.amazon.awssdk.awscore.AwsRequestOverrideConfiguration;
import software.amazon.awssdk.core.exception.SdkException;
import software.amazon.awssdk.core.exception.SdkServiceException;
import software.amazon.awssdk.core.sync.RequestBody;
import software.amazon.awssdk.services.s3.S3Client;
import software.amazon.awssdk.services.s3.model.DeleteObjectRequest;
import software.amazon.awssdk.services.s3.model.PutObjectRequest;

/**
 * Writes an object in S3 that must not be there yet, by a request that S3 itself refuses otherwise.
 *
 * <p>It asks through the client that Hadoop's S3A driver has at hand, with its credentials, endpoint and encryption. That
 * is the AWS SDK's second version since Hadoop 3.4.0; this class cannot be loaded with an earlier Hadoop.
 */
final class ConditionalPut {
    /** What S3 answered. */
    static final int WRITTEN = 200;
    /** S3 could not tell, as another such request for the same object was under way. */
    static final int UNDECIDED = 409;
    /** There is such an object. */
    static final int REFUSED = 412;

    private static final String WHO = "a commit to a Delta table";

    private final S3AFileSystem fileSystem;
    private final S3Client client;

    /**
     * @throws ClassCastException when the file system is not Hadoop's S3A.
     */
    ConditionalPut(FileSystem fileSystem) {
        this.fileSystem = (S3AFileSystem) fileSystem;
        this.client = this.fileSystem.getS3AInternals().getAmazonS3Client(WHO);
    }

    /** What tells one store from another: the bucket and where it is. */
    String store() {
        return fileSystem.getConf().get("fs.s3a.bucket." + fileSystem.getBucket() + ".endpoint",
            fileSystem.getConf().get("fs.s3a.endpoint", "")) + "/" + fileSystem.getBucket();
    }

    /**
     * Write the object if it is not there.
     *
     * @return one of the answers above.
     * @throws IOException when S3 answered otherwise, or not at all: nobody knows then whether the object was written.
     */
    int put(Path path, byte[] content) throws IOException {
        String key = fileSystem.pathToKey(path);
        PutObjectRequest.Builder request =
            fileSystem.getRequestFactory().newPutObjectRequestBuilder(key, options(), (long) content.length, false);
        AwsRequestOverrideConfiguration.Builder override = AwsRequestOverrideConfiguration.builder();
        override.putHeader("If-None-Match", "*");
        request.overrideConfiguration((AwsRequestOverrideConfiguration) override.build());
        try {
            client.putObject((PutObjectRequest) request.build(), RequestBody.fromBytes(content));
            return WRITTEN;
        } catch (SdkServiceException error) {
            if (error.statusCode() == REFUSED || error.statusCode() == UNDECIDED) {
                return error.statusCode();
            }
            throw S3AUtils.translateException("put if absent", path, error);
        } catch (SdkException error) {
            throw S3AUtils.translateException("put if absent", path, error);
        }
    }

    /**
     * Whether the store refuses to write an object that is there, tried out with an object beside the log's.
     *
     * @param folder where the object is written, and removed.
     */
    boolean isHonoured(Path folder) throws IOException {
        Path probe = new Path(folder, ".conditional_write_" + UUID.randomUUID());
        byte[] content = new byte[0];
        int first = put(probe, content);
        if (first != WRITTEN) {
            return false;
        }
        int second = put(probe, content);
        try {
            DeleteObjectRequest.Builder request = DeleteObjectRequest.builder();
            request.bucket(fileSystem.getBucket());
            request.key(fileSystem.pathToKey(probe));
            client.deleteObject((DeleteObjectRequest) request.build());
        } catch (SdkException error) {
            // Some may write but not delete. Delta passes over such names, and the object is empty.
            return second == REFUSED;
        }
        return second == REFUSED;
    }

    /** The options of a plain object, which each version of Hadoop makes in its own way. */
    private static PutObjectOptions options() throws IOException {
        for (String name : new String[] {"defaultOptions", "keepingDirs"}) {
            try {
                return (PutObjectOptions) PutObjectOptions.class.getMethod(name, new Class[0]).invoke(null, new Object[0]);
            } catch (ReflectiveOperationException error) {
                continue;
            }
        }
        throw new IOException("Hadoop's S3A driver makes no options of an object that are known here.");
    }
}
