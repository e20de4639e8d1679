// Uses Penstock's schema registry through Confluent's own Java client, which Flink's registry format carries under its own package
// names: one line for every step, "ok NAME" or "failed NAME: why".

import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.avro.AvroSchema;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.CachedSchemaRegistryClient;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.RestService;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.entities.Config;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.entities.SchemaReference;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.exceptions.RestClientException;

public class Registry {
    private static final AvroSchema NARROW = avro("{'type':'record','name':'Order','fields':[{'name':'n','type':'int'}]}");
    private static final AvroSchema WIDE = avro(
            "{'type':'record','name':'Order','fields':[{'name':'n','type':'long'},{'name':'s','type':'string','default':''}]}");
    private static final AvroSchema OTHER = avro("{'type':'record','name':'Order','fields':[{'name':'n','type':'string'}]}");
    private static String url;
    private static String prefix;

    interface Step {
        void run(CachedSchemaRegistryClient client, String subject) throws Exception;
    }

    interface Call {
        void run() throws Exception;
    }

    public static void main(String[] arguments) {
        url = arguments[0];
        prefix = arguments[1];
        step("schemas", Registry::schemas);
        step("kinds", Registry::kinds);
        step("references", Registry::references);
        step("compatibility", Registry::compatibility);
        step("modes", Registry::modes);
        step("deletes", Registry::deletes);
        step("contexts", Registry::contexts);
        step("errors", Registry::errors);
        System.exit(0);
    }

    private static void step(String name, Step step) {
        try (CachedSchemaRegistryClient client = client()) {
            step.run(client, prefix + "-" + name);
            System.out.println("ok " + name);
        } catch (Throwable problem) {
            System.out.println("failed " + name + ": " + String.valueOf(problem).replace('\n', ' '));
        }
    }

    private static CachedSchemaRegistryClient client() {
        return new CachedSchemaRegistryClient(url, 100);
    }

    private static AvroSchema avro(String text) {
        return new AvroSchema(text.replace('\'', '"'));
    }

    private static void same(Object found, Object expected) {
        if (!Objects.equals(found, expected)) {
            throw new AssertionError(found + " instead of " + expected);
        }
    }

    private static void refused(int code, Call call) throws Exception {
        try {
            call.run();
        } catch (RestClientException problem) {
            same(problem.getErrorCode(), code);
            return;
        }
        throw new AssertionError("it was accepted, instead of " + code);
    }

    private static void schemas(CachedSchemaRegistryClient client, String subject) throws Exception {
        int first = client.register(subject, NARROW);
        int second = client.register(subject, WIDE);
        same(client().register(subject, NARROW), first);
        // A client of its own each time, since this one would answer from memory.
        same(client().getSchemaById(second).canonicalString(), WIDE.canonicalString());
        same(client().getVersion(subject, WIDE), 2);
        same(client().getId(subject, WIDE), second);
        same(client().getAllVersions(subject), List.of(1, 2));
        same(client().getLatestSchemaMetadata(subject).getId(), second);
        same(client().getSchemaMetadata(subject, 1).getId(), first);
        same(Set.copyOf(client().getAllSubjectsById(first)), Set.of(subject));
        same(client().getAllVersionsById(second).iterator().next().getVersion(), 2);
        same(List.copyOf(client().getAllSubjectsByPrefix(subject)), List.of(subject));
        same(client().getSchemas(subject, false, true).size(), 1);
        same(client().register(subject + "-normal", NARROW, true), first);
    }

    private static void kinds(CachedSchemaRegistryClient client, String subject) throws Exception {
        RestService rest = new RestService(url);
        same(Set.copyOf(rest.getSchemaTypes()), Set.of("AVRO", "JSON", "PROTOBUF"));
        String proto = "syntax = \"proto3\"; message Order { int64 n = 1; }";
        int id = rest.registerSchema(proto, "PROTOBUF", List.of(), subject + "-proto").getId();
        same(rest.getId(id).getSchemaType(), "PROTOBUF");
        int json = rest.registerSchema("{\"type\":\"object\"}", "JSON", List.of(), subject + "-json").getId();
        same(rest.getId(json).getSchemaType(), "JSON");
    }

    private static void references(CachedSchemaRegistryClient client, String subject) throws Exception {
        client.register(subject + "-item", avro("{'type':'record','name':'Item','fields':[{'name':'n','type':'int'}]}"));
        List<SchemaReference> to = List.of(new SchemaReference("Item", subject + "-item", 1));
        String item = "{\"type\":\"record\",\"name\":\"Item\",\"fields\":[{\"name\":\"n\",\"type\":\"int\"}]}";
        String text = "{\"type\":\"record\",\"name\":\"Cart\",\"fields\":[{\"name\":\"item\",\"type\":\"Item\"}]}";
        int id = client.register(subject, new AvroSchema(text, to, Map.of("Item", item), null));
        // The client asks for what the schema refers to.
        same(client().getSchemaById(id).references(), to);
        same(new RestService(url).getReferencedBy(subject + "-item", 1), List.of(id));
        refused(42206, () -> client().deleteSchemaVersion(subject + "-item", "1", false));
    }

    private static void compatibility(CachedSchemaRegistryClient client, String subject) throws Exception {
        client.register(subject, NARROW);
        same(client.testCompatibility(subject, WIDE), true);
        same(client.testCompatibility(subject, OTHER), false);
        same(client.testCompatibilityVerbose(subject, OTHER).isEmpty(), false);
        refused(409, () -> client().register(subject, OTHER));
        same(client.updateConfig(subject, new Config("NONE")).getCompatibilityLevel(), "NONE");
        same(client().getConfig(subject).getCompatibilityLevel(), "NONE");
        client().register(subject, OTHER);
        client.deleteConfig(subject);
    }

    private static void modes(CachedSchemaRegistryClient client, String subject) throws Exception {
        client.register(subject, NARROW);
        same(client.setMode("READONLY", subject), "READONLY");
        same(client().getMode(subject), "READONLY");
        refused(42205, () -> client().register(subject, WIDE));
        client.deleteMode(subject);
        client().register(subject, WIDE);
        String imported = subject + "-imported";
        same(client.setMode("IMPORT", imported), "IMPORT");
        same(client.register(imported, NARROW, 7, 4_000_000), 4_000_000);
        same(client().getAllVersions(imported), List.of(7));
        client.deleteMode(imported);
    }

    private static void deletes(CachedSchemaRegistryClient client, String subject) throws Exception {
        client.register(subject, NARROW);
        client.register(subject, WIDE);
        same(client.deleteSchemaVersion(subject, "1", false), 1);
        same(client().getAllVersions(subject), List.of(2));
        same(client().getAllVersions(subject, true), List.of(1, 2));
        same(client.deleteSubject(subject, false), List.of(2));
        same(client().getAllSubjects().contains(subject), false);
        same(client().getAllSubjects(true).contains(subject), true);
        same(client.deleteSubject(subject, true), List.of(1, 2));
        same(client().getAllSubjects(true).contains(subject), false);
    }

    private static void contexts(CachedSchemaRegistryClient client, String subject) throws Exception {
        String there = ":." + prefix + ":" + subject;
        int id = client.register(there, NARROW);
        same(client().getLatestSchemaMetadata(there).getId(), id);
        same(client().getAllSubjects().contains(subject), false);
        same(new RestService(url).getAllContexts().contains("." + prefix), true);
    }

    private static void errors(CachedSchemaRegistryClient client, String subject) throws Exception {
        RestService rest = new RestService(url);
        refused(40401, () -> client().getLatestSchemaMetadata(subject));
        refused(40403, () -> client().getSchemaById(2_000_000_000));
        refused(42201, () -> rest.registerSchema("{\"type\":\"nothing\"}", subject));
        client.register(subject, NARROW);
        refused(40402, () -> client().getSchemaMetadata(subject, 9));
        refused(40403, () -> client().getVersion(subject, WIDE));
        refused(42203, () -> client().updateConfig(subject, new Config("SOMETIMES")));
    }
}
