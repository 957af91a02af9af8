import java.util.Map;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.delta.catalog.DeltaTableV2;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;

/**
 * A catalog that has nothing to do with Spark's own: its tables are the Delta tables of one folder, by the names of
 * their folders, in whatever namespace.
 */
public class FolderCatalog implements TableCatalog {
    private String name;
    private String folder;

    public void initialize(String name, CaseInsensitiveStringMap options) {
        this.name = name;
        this.folder = options.get("folder");
    }

    public String name() {
        return name;
    }

    public Table loadTable(Identifier table) throws NoSuchTableException {
        Path path = new Path(folder, table.name());
        if (!new java.io.File(path.toUri().getPath(), "_delta_log").exists()) {
            throw new NoSuchTableException(table);
        }
        return DeltaTableV2.apply(
            SparkSession.active(), path, Option.empty(), Option.apply(name + "." + table), EMPTY, Option.empty());
    }

    private static final scala.collection.immutable.Map EMPTY = DeltaTableV2.apply$default$5();

    public Identifier[] listTables(String[] namespace) {
        return new Identifier[0];
    }

    public Table alterTable(Identifier table, TableChange[] changes) {
        throw new UnsupportedOperationException();
    }

    public boolean dropTable(Identifier table) {
        throw new UnsupportedOperationException();
    }

    public void renameTable(Identifier from, Identifier to) {
        throw new UnsupportedOperationException();
    }
}
