package airflow_delta_merge.log_store;

import java.io.IOException;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.FileTime;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The stores that were seen to refuse a second writer, in this process and in earlier ones of this user on this machine.
 *
 * <p>Each merge is a driver of its own, and to ask a store takes three requests. So the answer is kept for a day, as an
 * empty file in the user's cache folder whose name is a digest of the store's endpoint and bucket. Not for longer: another
 * server may take over the address. Where no file can be written or read, the store is asked again.
 */
final class SeenStores {
    private static final long DAY_MILLISECONDS = 24L * 60 * 60 * 1000;
    private static final Set IN_THIS_PROCESS = ConcurrentHashMap.newKeySet();

    private SeenStores() {
    }

    /** @param store its endpoint and bucket */
    static boolean contains(String store) {
        if (IN_THIS_PROCESS.contains(store)) {
            return true;
        }
        try {
            long age = System.currentTimeMillis() - Files.getLastModifiedTime(file(store)).toMillis();
            return age >= 0 && age < DAY_MILLISECONDS;
        } catch (IOException error) {
            return false;
        } catch (SecurityException error) {
            return false;
        }
    }

    static void add(String store) {
        IN_THIS_PROCESS.add(store);
        try {
            Path file = file(store);
            Files.createDirectories(file.getParent(), new FileAttribute[0]);
            try {
                Files.createFile(file, new FileAttribute[0]);
            } catch (FileAlreadyExistsException error) {
                Files.setLastModifiedTime(file, FileTime.fromMillis(System.currentTimeMillis()));
            }
        } catch (IOException error) {
            return; // then the next process asks the store
        } catch (SecurityException error) {
            return;
        }
    }

    private static Path file(String store) throws IOException {
        String cache = System.getenv("XDG_CACHE_HOME");
        Path folder = cache != null && cache.length() > 0
            ? Paths.get(cache, new String[0])
            : Paths.get(System.getProperty("user.home"), new String[] {".cache"});
        return folder.resolve("airflow_delta_merge").resolve("conditional_writes").resolve(digest(store));
    }

    private static String digest(String text) throws IOException {
        try {
            byte[] bytes = MessageDigest.getInstance("SHA-256").digest(text.getBytes(StandardCharsets.UTF_8));
            return new BigInteger(1, bytes).toString(16);
        } catch (NoSuchAlgorithmException error) {
            throw new IOException(error);
        }
    }
}
