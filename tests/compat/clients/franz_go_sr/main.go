// Uses Penstock's schema registry through franz-go's sr: one line for every step, "ok NAME" or "failed NAME: why".
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/sr"
)

const (
	narrow = `{"type":"record","name":"Order","fields":[{"name":"n","type":"int"}]}`
	wide   = `{"type":"record","name":"Order","fields":[{"name":"n","type":"long"},{"name":"s","type":"string","default":""}]}`
	other  = `{"type":"record","name":"Order","fields":[{"name":"n","type":"string"}]}`
	proto  = `syntax = "proto3"; message Order { int64 n = 1; }`
	object = `{"type":"object","properties":{"n":{"type":"integer"}}}`
)

var prefix = os.Args[2]

func main() {
	step("schemas", schemas)
	step("kinds", kinds)
	step("references", references)
	step("compatibility", compatibility)
	step("modes", modes)
	step("deletes", deletes)
	step("contexts", contexts)
	step("serde", serde)
	step("errors", faults)
}

func step(name string, run func(context.Context, *sr.Client, string) error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := sr.NewClient(sr.URLs(os.Args[1]))
	if err == nil {
		err = run(ctx, client, prefix+"-"+name)
	}
	if err != nil {
		fmt.Printf("failed %s: %s\n", name, strings.ReplaceAll(err.Error(), "\n", " "))
		return
	}
	fmt.Printf("ok %s\n", name)
}

func check(holds bool, what string, values ...any) error {
	if holds {
		return nil
	}
	return fmt.Errorf(what, values...)
}

func avro(text string) sr.Schema { return sr.Schema{Schema: text} }

func schemas(ctx context.Context, client *sr.Client, subject string) error {
	first, err := client.CreateSchema(ctx, subject, avro(narrow))
	if err != nil {
		return err
	}
	second, err := client.CreateSchema(ctx, subject, avro(wide))
	if err != nil {
		return err
	}
	again, err := client.CreateSchema(ctx, subject, avro(narrow))
	if err != nil {
		return err
	}
	found, err := client.LookupSchema(ctx, subject, avro(wide))
	if err != nil {
		return err
	}
	byID, err := client.SchemaByID(ctx, second.ID)
	if err != nil {
		return err
	}
	latest, err := client.SchemaByVersion(ctx, subject, -1)
	if err != nil {
		return err
	}
	versions, err := client.SubjectVersions(ctx, subject)
	if err != nil {
		return err
	}
	all, err := client.Schemas(ctx, subject)
	if err != nil {
		return err
	}
	subjects, err := client.Subjects(ctx)
	if err != nil {
		return err
	}
	users, err := client.SchemaVersionsByID(ctx, first.ID)
	if err != nil {
		return err
	}
	return errors.Join(
		check(first.Version == 1 && second.Version == 2 && first.ID != second.ID, "registered %v and %v", first, second),
		check(again.ID == first.ID && again.Version == 1, "registered again as %v", again),
		check(found.ID == second.ID && byID.Schema == latest.Schema.Schema, "found %v, %v and %v", found, byID, latest),
		check(slices.Equal(versions, []int{1, 2}) && len(all) == 2, "versions %v, %d schemas", versions, len(all)),
		check(slices.Contains(subjects, subject), "no subject %s in %v", subject, subjects),
		check(len(users) > 0, "schema %d has no versions", first.ID),
	)
}

func kinds(ctx context.Context, client *sr.Client, subject string) error {
	supported, err := client.SupportedTypes(ctx)
	if err != nil {
		return err
	}
	made := map[string]sr.Schema{
		"protobuf": {Schema: proto, Type: sr.TypeProtobuf},
		"json":     {Schema: object, Type: sr.TypeJSON},
	}
	for name, schema := range made {
		created, err := client.CreateSchema(ctx, subject+"-"+name, schema)
		if err != nil {
			return err
		}
		if created.Schema.Type != schema.Type {
			return fmt.Errorf("%s is told as %v", name, created.Schema.Type)
		}
	}
	return check(len(supported) == 3, "types are %v", supported)
}

func references(ctx context.Context, client *sr.Client, subject string) error {
	name := "Item" + strings.ReplaceAll(prefix, "-", "_")
	item := fmt.Sprintf(`{"type":"record","name":"%s","fields":[{"name":"n","type":"int"}]}`, name)
	if _, err := client.CreateSchema(ctx, subject+"-item", avro(item)); err != nil {
		return err
	}
	list := avro(fmt.Sprintf(`{"type":"array","items":"%s"}`, name))
	list.References = []sr.SchemaReference{{Name: name, Subject: subject + "-item", Version: 1}}
	created, err := client.CreateSchema(ctx, subject, list)
	if err != nil {
		return err
	}
	referring, err := client.SchemaReferences(ctx, subject+"-item", 1)
	if err != nil {
		return err
	}
	_, err = client.DeleteSubject(ctx, subject+"-item", sr.SoftDelete)
	return errors.Join(
		check(len(referring) == 1 && referring[0].ID == created.ID, "referring are %v", referring),
		check(err != nil, "a schema that another refers to was deleted"),
	)
}

func compatibility(ctx context.Context, client *sr.Client, subject string) error {
	if _, err := client.CreateSchema(ctx, subject, avro(narrow)); err != nil {
		return err
	}
	good, err := client.CheckCompatibility(ctx, subject, -1, avro(wide))
	if err != nil {
		return err
	}
	bad, err := client.CheckCompatibility(sr.WithParams(ctx, sr.Verbose), subject, -1, avro(other))
	if err != nil {
		return err
	}
	_, refused := client.CreateSchema(ctx, subject, avro(other))
	set := client.SetCompatibility(ctx, sr.SetCompatibility{Level: sr.CompatNone}, subject)
	_, taken := client.CreateSchema(ctx, subject, avro(other))
	told := client.Compatibility(ctx, subject)
	reset := client.ResetCompatibility(ctx, subject)
	return errors.Join(
		check(good.Is && !bad.Is && len(bad.Messages) > 0, "checks say %v and %v", good, bad),
		check(refused != nil && taken == nil, "before %v, after %v", refused, taken),
		check(set[0].Err == nil && told[0].Level == sr.CompatNone && reset[0].Err == nil, "levels %v %v %v", set, told, reset),
	)
}

func modes(ctx context.Context, client *sr.Client, subject string) error {
	set := client.SetMode(ctx, sr.ModeReadOnly, subject)
	if set[0].Err != nil {
		return set[0].Err
	}
	_, refused := client.CreateSchema(ctx, subject, avro(narrow))
	client.ResetMode(ctx, subject)
	if imported := client.SetMode(ctx, sr.ModeImport, subject); imported[0].Err != nil {
		return imported[0].Err
	}
	text := fmt.Sprintf(`{"type":"fixed","name":"F","size":%d}`, time.Now().UnixNano()%1_000_000)
	id := 1_000_000_000 + int(time.Now().UnixNano()%1_000_000_000)
	created, err := client.CreateSchemaWithIDAndVersion(ctx, subject, avro(text), id, 7)
	if err != nil {
		return err
	}
	told := client.Mode(ctx, subject)
	return errors.Join(
		check(refused != nil, "a subject that is read-only took a schema"),
		check(created.ID == id && created.Version == 7, "imported as %v", created),
		check(told[0].Mode == sr.ModeImport, "the mode is %v", told),
	)
}

func deletes(ctx context.Context, client *sr.Client, subject string) error {
	created, err := client.CreateSchema(ctx, subject, avro(narrow))
	if err != nil {
		return err
	}
	if err := client.DeleteSchema(ctx, subject, 1, sr.SoftDelete); err != nil {
		return err
	}
	_, gone := client.SchemaByVersion(ctx, subject, 1)
	_, kept := client.SchemaByID(ctx, created.ID)
	hidden, err := client.SubjectVersions(sr.WithParams(ctx, sr.ShowDeleted), subject)
	if err != nil {
		return err
	}
	_, erased := client.DeleteSubject(ctx, subject, sr.HardDelete)
	return errors.Join(
		check(gone != nil && kept == nil, "after a soft delete %v and %v", gone, kept),
		check(slices.Equal(hidden, []int{1}) && erased == nil, "hidden %v, erased %v", hidden, erased),
	)
}

func contexts(ctx context.Context, client *sr.Client, subject string) error {
	created, err := client.CreateSchema(sr.InContext(ctx, "."+prefix), subject, avro(narrow))
	if err != nil {
		return err
	}
	names, err := client.Contexts(ctx)
	if err != nil {
		return err
	}
	return check(created.ID == 1 && slices.Contains(names, "."+prefix), "schema %d of contexts %v", created.ID, names)
}

func serde(ctx context.Context, client *sr.Client, subject string) error {
	created, err := client.CreateSchema(ctx, subject, sr.Schema{Schema: object, Type: sr.TypeJSON})
	if err != nil {
		return err
	}
	type order struct {
		N int `json:"n"`
	}
	var coder sr.Serde
	coder.Register(created.ID, order{}, sr.EncodeFn(json.Marshal), sr.DecodeFn(json.Unmarshal))
	encoded, err := coder.Encode(order{7})
	if err != nil {
		return err
	}
	id, payload, err := coder.DecodeID(encoded)
	if err != nil {
		return err
	}
	var decoded order
	if err := coder.Decode(encoded, &decoded); err != nil {
		return err
	}
	return check(id == created.ID && bytes.Equal(payload, []byte(`{"n":7}`)) && decoded.N == 7, "%d %s %v", id, payload, decoded)
}

func faults(ctx context.Context, client *sr.Client, subject string) error {
	_, unknown := client.SchemaByID(ctx, 2_000_000_001)
	_, invalid := client.CreateSchema(ctx, subject, avro("{"))
	_, missing := client.SubjectVersions(ctx, subject)
	return errors.Join(
		check(number(unknown) == sr.ErrSchemaNotFound.Code, "an unknown id is %v", unknown),
		check(number(invalid) == sr.ErrInvalidSchema.Code, "an invalid schema is %v", invalid),
		check(number(missing) == sr.ErrSubjectNotFound.Code, "an unknown subject is %v", missing),
	)
}

func number(err error) int {
	var answer *sr.ResponseError
	if !errors.As(err, &answer) {
		return 0
	}
	return answer.ErrorCode
}
