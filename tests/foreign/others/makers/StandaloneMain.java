import io.delta.standalone.*;
import io.delta.standalone.actions.*;
import java.nio.file.*;
import java.util.*;
import org.apache.hadoop.conf.Configuration;
public class StandaloneMain {
  public static void main(String[] a) throws Exception {
    for (int i = 0; i + 1 < a.length; i += 2) {
      try {
      DeltaLog src = DeltaLog.forTable(new Configuration(), a[i]), dst = DeltaLog.forTable(new Configuration(), a[i + 1]);
      Metadata m = src.snapshot().getMetadata();
      OptimisticTransaction t = dst.startTransaction();
      t.updateMetadata(new Metadata.Builder().schema(m.getSchema()).partitionColumns(m.getPartitionColumns()).configuration(Collections.singletonMap("delta.checkpointInterval", "4")).build());
      t.commit(new ArrayList<Action>(), new Operation(Operation.Name.CREATE_TABLE), "standalone try");
      List<AddFile> files = new ArrayList<>(src.snapshot().getAllFiles());
      files.sort(Comparator.comparing(f -> f.getModificationTime()));
      for (AddFile f : files) {
        String p = java.net.URI.create(f.getPath()).getPath();
        Path to = Paths.get(a[i + 1], p); Files.createDirectories(to.getParent()); Files.copy(Paths.get(a[i], p), to, StandardCopyOption.REPLACE_EXISTING);
        OptimisticTransaction w = dst.startTransaction();
        w.commit(Collections.singletonList((Action) new AddFile(f.getPath(), f.getPartitionValues(), f.getSize(), f.getModificationTime(), true, null, null)), new Operation(Operation.Name.WRITE), "standalone try");
      }
      System.out.println(a[i + 1] + " done " + dst.update().getVersion());
      } catch (Throwable e) { System.out.println(a[i + 1] + ": " + e); e.printStackTrace(System.out); }
    }
  }
}
