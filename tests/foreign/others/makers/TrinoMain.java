import com.google.inject.Binder;
import com.google.inject.Module;
import com.google.inject.multibindings.MapBinder;
import io.trino.Session;
import io.trino.filesystem.TrinoFileSystemFactory;
import io.trino.filesystem.local.LocalFileSystemFactory;
import io.trino.plugin.deltalake.DeltaLakeConnectorFactory;
import io.trino.spi.Plugin;
import io.trino.spi.connector.*;
import io.trino.testing.*;
import java.nio.file.*;
import java.util.*;

public class TrinoMain {
  public static void main(String[] a) throws Exception {
    java.io.PrintStream out = new java.io.PrintStream(new java.io.FileOutputStream(a[2]), true);
    Path root = Paths.get(a[0]).toAbsolutePath().normalize();
    Files.createDirectories(root);
    Module local = (Binder b) -> { MapBinder.newMapBinder(b, String.class, TrinoFileSystemFactory.class).addBinding("local").toInstance(new LocalFileSystemFactory(root));
      MapBinder.newMapBinder(b, String.class, io.trino.plugin.deltalake.transactionlog.writer.TransactionLogSynchronizer.class).addBinding("local").to(io.trino.plugin.deltalake.transactionlog.writer.LocalTransactionLogSynchronizer.class); };
    Session s = TestingSession.testSessionBuilder().setCatalog("delta").setSchema("s").build();
    DistributedQueryRunner q = DistributedQueryRunner.builder(s).setWorkerCount(0).build();
    q.installPlugin(new Plugin() {
      public Iterable<ConnectorFactory> getConnectorFactories() {
        return List.of(new ConnectorFactory() {
          public String getName() { return "delta_lake"; }
          public Connector create(String n, Map<String, String> c, ConnectorContext x) { return DeltaLakeConnectorFactory.createConnector(n, c, x, Optional.empty(), local); }
        });
      }
    });
    Map<String, String> p = new HashMap<>();
    p.put("hive.metastore", "file");
    p.put("hive.metastore.catalog.dir", "local:///meta");
    p.put("fs.hadoop.enabled", "false");
    p.put("delta.enable-non-concurrent-writes", "true");
    if (System.getProperty("extra") != null) for (String e : System.getProperty("extra").split(",")) { String[] kv = e.split("=", 2); p.put(kv[0], kv[1]); }
    q.createCatalog("delta", "delta_lake", p);
    for (String sql : Files.readString(Paths.get(a[1])).split(";\n")) {
      if (sql.isBlank()) continue;
      try { out.println("ok " + sql.substring(0, Math.min(100, sql.length())).replace("\n", " ") + " -> " + q.execute(s, sql).getUpdateCount()); }
      catch (Throwable t) { out.println("FAILED " + sql.substring(0, Math.min(200, sql.length())) + ": " + t); if (System.getenv("TRACE") != null) t.printStackTrace(out); }
    }
    System.exit(0);
  }
}
