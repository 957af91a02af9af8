import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.delta.catalog.DeltaCatalog;
import org.apache.spark.sql.execution.datasources.v2.V2SessionCatalog;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Delta's own catalog under another name than Spark's, over the same tables, as catalog services build on it. */
public class SecondDeltaCatalog extends DeltaCatalog {
    public void initialize(String name, CaseInsensitiveStringMap options) {
        super.initialize(name, options);
        setDelegateCatalog(new V2SessionCatalog(SparkSession.active().sessionState().catalog()));
    }
}
