import com.fasterxml.jackson.databind.*;
import io.delta.kernel.*;
import io.delta.kernel.data.*;
import io.delta.kernel.defaults.engine.DefaultEngine;
import io.delta.kernel.engine.Engine;
import io.delta.kernel.expressions.*;
import io.delta.kernel.types.*;
import io.delta.kernel.utils.*;
import java.io.*;
import java.math.BigDecimal;
import java.util.*;
import org.apache.hadoop.conf.Configuration;

public class KernelMain {
  static DataType type(String t) {
    switch (t) {
      case "INT": return IntegerType.INTEGER;
      case "BIGINT": return LongType.LONG;
      case "STRING": return StringType.STRING;
      case "DATE": return DateType.DATE;
      case "TIMESTAMP": return TimestampType.TIMESTAMP;
      case "TIMESTAMP_NTZ": return TimestampNTZType.TIMESTAMP_NTZ;
      case "DOUBLE": return DoubleType.DOUBLE;
      case "FLOAT": return FloatType.FLOAT;
      case "BOOLEAN": return BooleanType.BOOLEAN;
      case "BINARY": return BinaryType.BINARY;
    }
    String[] p = t.substring(8, t.length() - 1).split(",");
    return new DecimalType(Integer.parseInt(p[0]), Integer.parseInt(p[1]));
  }
  static class Vec implements ColumnVector {
    final DataType t; final List<String> v;
    Vec(DataType t, List<String> v) { this.t = t; this.v = v; }
    public DataType getDataType() { return t; }
    public int getSize() { return v.size(); }
    public void close() {}
    public boolean isNullAt(int i) { return v.get(i) == null; }
    public boolean getBoolean(int i) { return Boolean.parseBoolean(v.get(i)); }
    public int getInt(int i) { return Integer.parseInt(v.get(i)); }
    public long getLong(int i) { return Long.parseLong(v.get(i)); }
    public float getFloat(int i) { return Float.parseFloat(v.get(i)); }
    public double getDouble(int i) { return Double.parseDouble(v.get(i)); }
    public byte[] getBinary(int i) { return Base64.getDecoder().decode(v.get(i)); }
    public String getString(int i) { return v.get(i); }
    public BigDecimal getDecimal(int i) { return new BigDecimal(v.get(i)); }
  }
  static class Batch implements ColumnarBatch {
    final StructType s; final List<Vec> c;
    Batch(StructType s, List<Vec> c) { this.s = s; this.c = c; }
    public StructType getSchema() { return s; }
    public ColumnVector getColumnVector(int i) { return c.get(i); }
    public int getSize() { return c.get(0).getSize(); }
    public ColumnarBatch withNewSchema(StructType n) { return new Batch(n, c); }
    public ColumnarBatch withDeletedColumnAt(int i) {
      List<StructField> f = new ArrayList<>(s.fields()); f.remove(i);
      List<Vec> d = new ArrayList<>(c); d.remove(i);
      return new Batch(new StructType(f), d);
    }
    public ColumnarBatch withNewColumn(int i, StructField n, ColumnVector v) { throw new UnsupportedOperationException(); }
  }
  static Literal literal(Vec v, int i) {
    DataType t = v.t;
    if (v.isNullAt(i)) return Literal.ofNull(t);
    if (t instanceof IntegerType) return Literal.ofInt(v.getInt(i));
    if (t instanceof LongType) return Literal.ofLong(v.getLong(i));
    if (t instanceof StringType) return Literal.ofString(v.getString(i));
    if (t instanceof DateType) return Literal.ofDate(v.getInt(i));
    if (t instanceof TimestampType) return Literal.ofTimestamp(v.getLong(i));
    if (t instanceof TimestampNTZType) return Literal.ofTimestampNtz(v.getLong(i));
    if (t instanceof DoubleType) return Literal.ofDouble(v.getDouble(i));
    if (t instanceof FloatType) return Literal.ofFloat(v.getFloat(i));
    if (t instanceof BooleanType) return Literal.ofBoolean(v.getBoolean(i));
    if (t instanceof BinaryType) return Literal.ofBinary(v.getBinary(i));
    DecimalType d = (DecimalType) t;
    return Literal.ofDecimal(v.getDecimal(i).setScale(d.getScale()), d.getPrecision(), d.getScale());
  }
  static <T> CloseableIterator<T> iter(Iterator<T> i) {
    return new CloseableIterator<T>() { public boolean hasNext() { return i.hasNext(); } public T next() { return i.next(); } public void close() {} };
  }
  static void append(Engine e, Table table, StructType s, List<Vec> cols, String by) throws Exception {
    TransactionBuilder b = table.createTransactionBuilder(e, "try", Operation.WRITE);
    Transaction txn = b.build(e);
    Row state = txn.getTransactionState(e);
    List<Row> actions = new ArrayList<>();
    int n = cols.get(0).getSize();
    List<int[]> parts = new ArrayList<>();
    int at = by == null ? -1 : s.indexOf(by);
    if (at < 0) { int[] all = new int[n]; for (int i = 0; i < n; i++) all[i] = i; parts.add(all); }
    else { Map<String, List<Integer>> m = new LinkedHashMap<>(); for (int i = 0; i < n; i++) m.computeIfAbsent(cols.get(at).v.get(i), k -> new ArrayList<>()).add(i);
      for (List<Integer> l : m.values()) parts.add(l.stream().mapToInt(x -> x).toArray()); }
    for (int[] rows : parts) {
      List<Vec> c = new ArrayList<>();
      for (Vec v : cols) { List<String> l = new ArrayList<>(); for (int r : rows) l.add(v.v.get(r)); c.add(new Vec(v.t, l)); }
      Map<String, Literal> pv = at < 0 ? Collections.emptyMap() : Collections.singletonMap(by, literal(c.get(at), 0));
      FilteredColumnarBatch fb = new FilteredColumnarBatch(new Batch(s, c), Optional.empty());
      CloseableIterator<FilteredColumnarBatch> phys = Transaction.transformLogicalData(e, state, iter(Collections.singletonList(fb).iterator()), pv);
      DataWriteContext w = Transaction.getWriteContext(e, state, pv);
      CloseableIterator<DataFileStatus> files = e.getParquetHandler().writeParquetFiles(w.getTargetDirectory(), phys, w.getStatisticsColumns());
      CloseableIterator<Row> a = Transaction.generateAppendActions(e, state, files, w);
      while (a.hasNext()) actions.add(a.next());
    }
    txn.commit(e, CloseableIterable.inMemoryIterable(iter(actions.iterator())));
  }
  public static void main(String[] a) throws Exception {
    JsonNode d = new ObjectMapper().readTree(new File(a[1]));
    List<String> names = new ArrayList<>(), types = new ArrayList<>();
    d.get("names").forEach(x -> names.add(x.asText())); d.get("types").forEach(x -> types.add(x.asText()));
    for (int k = 2; k < a.length; k++) {
      // name=layout=columns(,)=by=prop:val;prop:val=checkpoint
      String[] q = a[k].split("=", -1);
      String[] want = q[2].split(",");
      String by = q[3].isEmpty() ? null : q[3];
      try {
        Engine e = DefaultEngine.create(new Configuration());
        Table table = Table.forPath(e, a[0] + "/" + q[0]);
        StructType s = new StructType();
        List<Integer> at = new ArrayList<>();
        for (String w : want) { int i = names.indexOf(w); at.add(i); s = s.add(w, type(types.get(i)), true); }
        TransactionBuilder b = table.createTransactionBuilder(e, "try", Operation.CREATE_TABLE).withSchema(e, s);
        if (by != null) b = b.withPartitionColumns(e, Collections.singletonList(by));
        if (!q[4].isEmpty()) {
          Map<String, String> props = new TreeMap<>(); String cluster = null;
          for (String p : q[4].split(";")) { String[] pv = p.split(":"); if (pv[0].equals("CLUSTER")) cluster = pv[1]; else props.put(pv[0], pv[1]); }
          if (!props.isEmpty()) b = (TransactionBuilder) TransactionBuilder.class.getMethod("withTableProperties", Engine.class, Map.class).invoke(b, e, props);
          if (cluster != null) b = (TransactionBuilder) TransactionBuilder.class.getMethod("withClusteringColumns", Engine.class, List.class).invoke(b, e, Collections.singletonList(new Column(cluster)));
        }
        b.build(e).commit(e, CloseableIterable.emptyIterable());
        int nr = 0;
        for (JsonNode f : d.get(q[1])) {
          List<Vec> cols = new ArrayList<>();
          for (int i = 0; i < want.length; i++) { List<String> l = new ArrayList<>(); f.get(at.get(i)).forEach(x -> l.add(x.isNull() ? null : x.asText())); cols.add(new Vec(type(types.get(at.get(i))), l)); }
          try { append(e, table, s, cols, by); } catch (Throwable t) { System.out.println(q[0] + " file " + nr + ": " + t); if (System.getenv("TRACE") != null) t.printStackTrace(System.out); }
          nr++;
        }
        if (q.length > 5 && !q[5].isEmpty()) table.checkpoint(e, Long.parseLong(q[5]));
        System.out.println(q[0] + " done");
      } catch (Throwable t) { System.out.println(q[0] + ": " + t); if (System.getenv("TRACE") != null) t.printStackTrace(System.out); }
    }
  }
}
