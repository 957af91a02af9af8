import java.net.URI;
import java.nio.file.AccessDeniedException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;

/** Local files under the scheme "kept", none of which may be deleted, as some buckets' policies say. */
public class KeepingFiles extends RawLocalFileSystem {
    public String getScheme() {
        return "kept";
    }

    public URI getUri() {
        return URI.create("kept:///");
    }

    public boolean delete(Path path, boolean recursive) throws AccessDeniedException {
        throw new AccessDeniedException(path.toString());
    }
}
