package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/apache/arrow/go/v14/arrow"
	"github.com/apache/arrow/go/v14/arrow/array"
	"github.com/apache/arrow/go/v14/arrow/decimal128"
	"github.com/apache/arrow/go/v14/arrow/memory"
	"github.com/apache/arrow/go/v14/parquet"
	"github.com/apache/arrow/go/v14/parquet/compress"
	"github.com/apache/arrow/go/v14/parquet/pqarrow"
	"github.com/rivian/delta-go"
	"github.com/rivian/delta-go/lock/filelock"
	"github.com/rivian/delta-go/lock/nillock"
	"github.com/rivian/delta-go/state/filestate"
	"github.com/rivian/delta-go/storage"
	"github.com/rivian/delta-go/storage/filestore"
)

type dataFile struct {
	Names    []string
	Types    []string
	Disjoint [][][]*string
	Overlap  [][][]*string
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

var storeAsInteger = os.Getenv("DECIMALS_AS_INTEGERS") != ""

func decimalOf(t string) (int32, int32) {
	p := strings.Split(strings.TrimSuffix(strings.TrimPrefix(t, "DECIMAL("), ")"), ",")
	a, _ := strconv.Atoi(p[0])
	b, _ := strconv.Atoi(p[1])
	return int32(a), int32(b)
}

func arrowType(t string) arrow.DataType {
	switch t {
	case "INT":
		return arrow.PrimitiveTypes.Int32
	case "BIGINT":
		return arrow.PrimitiveTypes.Int64
	case "STRING":
		return arrow.BinaryTypes.String
	case "DATE":
		return arrow.FixedWidthTypes.Date32
	case "TIMESTAMP":
		return &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
	case "DOUBLE":
		return arrow.PrimitiveTypes.Float64
	case "FLOAT":
		return arrow.PrimitiveTypes.Float32
	case "BOOLEAN":
		return arrow.FixedWidthTypes.Boolean
	case "BINARY":
		return arrow.BinaryTypes.Binary
	}
	p, s := decimalOf(t)
	return &arrow.Decimal128Type{Precision: p, Scale: s}
}

func deltaType(t string) delta.SchemaDataType {
	switch t {
	case "INT":
		return delta.Integer
	case "BIGINT":
		return delta.Long
	case "STRING":
		return delta.String
	case "DATE":
		return delta.Date
	case "TIMESTAMP":
		return delta.Timestamp
	case "DOUBLE":
		return delta.Double
	case "FLOAT":
		return delta.Float
	case "BOOLEAN":
		return delta.Boolean
	case "BINARY":
		return delta.Binary
	}
	return delta.SchemaDataTypeName(strings.ToLower(t))
}

func appendTo(b array.Builder, t string, v *string) {
	if v == nil {
		b.AppendNull()
		return
	}
	switch x := b.(type) {
	case *array.Int32Builder:
		n, e := strconv.ParseInt(*v, 10, 32)
		must(e)
		x.Append(int32(n))
	case *array.Int64Builder:
		n, e := strconv.ParseInt(*v, 10, 64)
		must(e)
		x.Append(n)
	case *array.StringBuilder:
		if len(*v) >= 32 && len([]rune(*v)) < 32 { // its statistics panic for these
			x.Append(*v + strings.Repeat("y", 20))
		} else {
			x.Append(*v)
		}
	case *array.BinaryBuilder:
		r, e := base64.StdEncoding.DecodeString(*v)
		must(e)
		x.Append(r)
	case *array.Date32Builder:
		n, e := strconv.ParseInt(*v, 10, 32)
		must(e)
		x.Append(arrow.Date32(n))
	case *array.TimestampBuilder:
		n, e := strconv.ParseInt(*v, 10, 64)
		must(e)
		x.Append(arrow.Timestamp(n))
	case *array.Float64Builder:
		n, e := strconv.ParseFloat(*v, 64)
		must(e)
		x.Append(n)
	case *array.Float32Builder:
		n, e := strconv.ParseFloat(*v, 32)
		must(e)
		x.Append(float32(n))
	case *array.BooleanBuilder:
		x.Append(*v == "true")
	case *array.Decimal128Builder:
		_, s := decimalOf(t)
		txt := *v
		i := strings.Index(txt, ".")
		frac := 0
		if i >= 0 {
			frac = len(txt) - i - 1
			txt = txt[:i] + txt[i+1:]
		}
		txt += strings.Repeat("0", int(s)-frac)
		n, ok := new(big.Int).SetString(txt, 10)
		if !ok {
			panic(txt)
		}
		x.Append(decimal128.FromBigInt(n))
	default:
		panic(fmt.Sprintf("%T", b))
	}
}

func write(dir string, d *dataFile, layout string, want []string, by string, checkpoint bool) {
	must(os.MkdirAll(filepath.Join(dir, "_delta_log"), 0o755))
	path := storage.NewPath(dir)
	store := filestore.New(path)
	state := filestate.New(path, "_delta_log/_commit.state")
	lock := filelock.New(path, "_delta_log/_commit.lock", filelock.Options{})
	table := delta.NewTable(store, lock, state)
	var at []int
	fields := []delta.SchemaField{}
	arrowFields := []arrow.Field{}
	for _, w := range want {
		for i, n := range d.Names {
			if n == w {
				at = append(at, i)
				fields = append(fields, delta.SchemaField{Name: w, Type: deltaType(d.Types[i]), Nullable: true, Metadata: map[string]any{}})
				if w != by {
					arrowFields = append(arrowFields, arrow.Field{Name: w, Type: arrowType(d.Types[i]), Nullable: true})
				}
			}
		}
	}
	parts := []string{}
	if by != "" {
		parts = append(parts, by)
	}
	md := delta.NewTableMetaData("t", "", new(delta.Format).Default(), delta.SchemaTypeStruct{Fields: fields}, parts, map[string]string{})
	must(table.Create(*md, new(delta.Protocol).Default(), delta.CommitInfo{}, []delta.Add{}))
	files := d.Disjoint
	if layout == "overlap" {
		files = d.Overlap
	}
	schema := arrow.NewSchema(arrowFields, nil)
	var last int64
	for n, f := range files {
		groups := map[string][]int{}
		order := []string{}
		for r := range f[at[0]] {
			k := ""
			if by != "" {
				for j, w := range want {
					if w == by {
						if v := f[at[j]][r]; v == nil {
							k = ""
						} else {
							k = *v
						}
					}
				}
			}
			if _, ok := groups[k]; !ok {
				order = append(order, k)
			}
			groups[k] = append(groups[k], r)
		}
		txn := table.CreateTransaction(delta.NewTransactionOptions())
		for g, k := range order {
			rb := array.NewRecordBuilder(memory.DefaultAllocator, schema)
			c := 0
			for j, w := range want {
				if w == by {
					continue
				}
				for _, r := range groups[k] {
					appendTo(rb.Field(c), d.Types[at[j]], f[at[j]][r])
				}
				c++
			}
			rec := rb.NewRecord()
			buf := new(bytes.Buffer)
			opts := []parquet.WriterProperty{parquet.WithCompression(compress.Codecs.Snappy)}
			pw, err := pqarrow.NewFileWriter(schema, buf, parquet.NewWriterProperties(opts...), pqarrow.DefaultWriterProps())
			must(err)
			must(pw.Write(rec))
			must(pw.Close())
			name := fmt.Sprintf("part-%d-%d.snappy.parquet", n, g)
			pv := map[string]string{}
			if by != "" {
				pv[by] = k
			}
			must(os.WriteFile(filepath.Join(dir, name), buf.Bytes(), 0o644))
			add, missing, err := delta.NewAdd(store, storage.NewPath(name), pv)
			must(err)
			if len(missing) > 0 {
				fmt.Println("missing", missing)
			}
			txn.AddAction(add)
		}
		txn.SetOperation(delta.Write{Mode: delta.Append})
		v, err := txn.Commit()
		must(err)
		last = v
	}
	if checkpoint {
		ok, err := table.CreateCheckpoint(nillock.New(), delta.NewCheckpointConfiguration(), last)
		must(err)
		fmt.Println("checkpoint", ok)
	}
}

func main() {
	raw, err := os.ReadFile(os.Args[2])
	must(err)
	d := new(dataFile)
	must(json.Unmarshal(raw, d))
	for _, spec := range os.Args[3:] {
		q := strings.Split(spec, "=")
		func() {
			defer func() {
				if e := recover(); e != nil {
					fmt.Println(q[0], "PANIC", e)
				}
			}()
			write(filepath.Join(os.Args[1], q[0]), d, q[1], strings.Split(q[2], ","), q[3], len(q) > 4 && q[4] != "")
			fmt.Println(q[0], "done")
		}()
	}
}
