import java.io.IOException;
import java.nio.file.FileAlreadyExistsException;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;

/**
 * Delta's log store for local files, with a fault in the next commit that the system property names, once:
 *
 * "refused": the commit file is not written. "unheard": it is written, but that is told as an error. "repeated": it
 * is written, the answer lost, and a second attempt finds the file there. "blind": it is written, and the log can't be
 * listed afterwards.
 */
public class FaultyLogStore extends io.delta.storage.HDFSLogStore {
    private static final String FAULT = "airflow_delta_merge.fault";

    public FaultyLogStore(Configuration conf) {
        super(conf);
    }

    public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration conf) throws IOException {
        String fault = path.getName().endsWith(".json") ? System.clearProperty(FAULT) : null;
        if ("refused".equals(fault)) {
            throw new IOException("the storage refused the write");
        }
        super.write(path, actions, overwrite, conf);
        if ("unheard".equals(fault)) {
            throw new IOException("the storage's answer got lost");
        }
        if ("repeated".equals(fault)) {
            throw new FileAlreadyExistsException(path.toString());
        }
        if ("blind".equals(fault)) {
            System.setProperty(FAULT, "list");
        }
    }

    public Iterator<FileStatus> listFrom(Path path, Configuration conf) throws IOException {
        if ("list".equals(System.getProperty(FAULT))) {
            System.clearProperty(FAULT);
            throw new IOException("the log can't be listed");
        }
        return super.listFrom(path, conf);
    }
}
