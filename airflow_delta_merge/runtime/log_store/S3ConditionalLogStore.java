package airflow_delta_merge.log_store;

import io.delta.storage.S3SingleDriverLogStore;
import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.AccessDeniedException;
import java.nio.file.FileAlreadyExistsException;
import java.util.Arrays;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.Path;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Delta's log store for S3, with commits that S3 itself holds to one writer each.
 *
 * <p>Delta's own looks whether a version's file is there and writes it then, so two drivers that have both looked both
 * write, and the rows of the first are lost. Here the request itself says that there must be no such file.
 */
public class S3ConditionalLogStore extends S3SingleDriverLogStore {
    /** How often a write is tried whose outcome nobody told. */
    private static final int ATTEMPTS = 5;
    private static final long FIRST_WAIT_MILLISECONDS = 200;
    private static final String WHAT_TO_DO = " Two drivers that commit to a table there at once would lose a commit. Merge"
        + " where the store refuses the second one; or make sure that no two writers commit to a table at a time, and say so"
        + " in the Spark connection's extra: \"s3_single_writer\": true.";

    private static final Logger LOG = LoggerFactory.getLogger(S3ConditionalLogStore.class);

    public S3ConditionalLogStore(Configuration conf) {
        super(conf);
    }

    /**
     * Write one file of the log.
     *
     * @throws FileAlreadyExistsException when another writer's file is there, which is for Delta to resolve.
     * @throws IOException when it is not known whether the file was written.
     * @throws UnsupportedOperationException as {@link #requireConditionalWrites}.
     */
    public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration conf) throws IOException {
        if (overwrite.booleanValue()) {
            super.write(path, actions, overwrite, conf);
            return;
        }
        // First all of it: an action may fail, and then nothing shall be written.
        ByteArrayOutputStream content = new ByteArrayOutputStream();
        while (actions.hasNext()) {
            content.write((((String) actions.next()) + "\n").getBytes(StandardCharsets.UTF_8));
        }
        requireConditionalWrites(path.getParent(), conf);
        writeOnce(path, content.toByteArray(), conf);
    }

    /**
     * Make sure that the store refuses to write an object that is there. It is asked once a day for each bucket and endpoint.
     *
     * @param folder the folder of a table's log.
     * @throws UnsupportedOperationException when it does not, or cannot be asked so.
     */
    public void requireConditionalWrites(Path folder, Configuration conf) throws IOException {
        ConditionalPut put = conditionalPut(folder, conf);
        if (SeenStores.contains(put.store())) {
            return;
        }
        if (!put.isHonoured(folder)) {
            throw new UnsupportedOperationException("The store at " + folder.toUri().getScheme() + "://"
                + folder.toUri().getAuthority() + " ignores the header If-None-Match." + WHAT_TO_DO);
        }
        SeenStores.add(put.store());
    }

    private void writeOnce(Path path, byte[] content, Configuration conf) throws IOException {
        ConditionalPut put = conditionalPut(path, conf);
        IOException lost = null;
        for (int attempt = 1; attempt <= ATTEMPTS; attempt++) {
            try {
                put.put(path, content);
            } catch (AccessDeniedException error) {
                throw error;
            } catch (IOException error) {
                LOG.warn("Attempt {} to write {} has no answer: {}", new Object[] {attempt, path, error.toString()});
                lost = error;
            }
            // Whatever was answered, what stands there decides: the id of each transaction is in its commit. A request
            // whose answer got lost may have been carried out, and the client itself tries requests again.
            byte[] there = contentOf(path, conf);
            if (there != null) {
                if (Arrays.equals(there, content)) {
                    return;
                }
                throw new FileAlreadyExistsException(path.toString());
            }
            pause(FIRST_WAIT_MILLISECONDS << (attempt - 1));
        }
        throw new IOException("S3 did not tell whether it has written " + path + ", and does not have it yet.", lost);
    }

    private static ConditionalPut conditionalPut(Path path, Configuration conf) throws IOException {
        try {
            return new ConditionalPut(path.getFileSystem(conf));
        } catch (ClassCastException error) {
            throw new UnsupportedOperationException(
                path.toUri().getScheme() + ":// is not reached by Hadoop's S3A driver, which asks S3 to refuse." + WHAT_TO_DO,
                error);
        } catch (LinkageError error) {
            throw new UnsupportedOperationException(
                "Hadoop's S3A driver is older than 3.4.0 or lacks the AWS SDK, so S3 can't be asked to refuse (" + error
                + ")." + WHAT_TO_DO, error);
        }
    }

    private static byte[] contentOf(Path path, Configuration conf) throws IOException {
        FSDataInputStream in;
        try {
            in = path.getFileSystem(conf).open(path);
        } catch (FileNotFoundException error) {
            return null;
        }
        try {
            ByteArrayOutputStream content = new ByteArrayOutputStream();
            byte[] part = new byte[1 << 16];
            for (int length = in.read(part); length >= 0; length = in.read(part)) {
                content.write(part, 0, length);
            }
            return content.toByteArray();
        } catch (FileNotFoundException error) {
            return null; // S3A may look for the object only when it is read
        } finally {
            in.close();
        }
    }

    private static void pause(long milliseconds) throws IOException {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new IOException("interrupted while a commit was written", error);
        }
    }
}
