import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.util.QueryExecutionListener;

/** Keeps what Spark tells a listener of executions: name, plans, nanoseconds (null after a failure), error (or null). */
public class HeardExecutions implements QueryExecutionListener {
    private final List heard = Collections.synchronizedList(new ArrayList());

    public List heard() {
        return heard;
    }

    public void onSuccess(String name, QueryExecution execution, long nanoseconds) {
        heard.add(new Object[] {name, execution, Long.valueOf(nanoseconds), null});
    }

    public void onFailure(String name, QueryExecution execution, Exception error) {
        heard.add(new Object[] {name, execution, null, error});
    }
}
