import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.s3a.RemoteFileChangedException;

/**
 * Delta's log store for S3, which S3 itself holds to one writer of each commit: by a request that it refuses where
 * there is such an object already. Delta's looks first and writes then, so of two drivers that have looked both write.
 */
public class ConditionalLogStore extends io.delta.storage.S3SingleDriverLogStore {
    public ConditionalLogStore(Configuration conf) {
        super(conf);
    }

    public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration conf) throws IOException {
        if (overwrite.booleanValue()) {
            super.write(path, actions, overwrite, conf);
            return;
        }
        // First all of it: what a stream has got when it is closed is written, though an action may have failed.
        ByteArrayOutputStream commit = new ByteArrayOutputStream();
        while (actions.hasNext()) {
            commit.write((((String) actions.next()) + "\n").getBytes(StandardCharsets.UTF_8));
        }
        FSDataOutputStreamBuilder builder = path.getFileSystem(conf).createFile(path);
        builder.overwrite(false);
        builder.must("fs.option.create.conditional.overwrite", true);
        try {
            FSDataOutputStream out = (FSDataOutputStream) builder.build();
            out.write(commit.toByteArray());
            out.close();
        } catch (org.apache.hadoop.fs.FileAlreadyExistsException error) {
            throw new FileAlreadyExistsException(path.toString());
        } catch (RemoteFileChangedException error) {
            throw new FileAlreadyExistsException(path.toString());
        }
    }
}
