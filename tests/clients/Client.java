import java.util.List;
import org.openapitools.client.ApiClient;
import org.openapitools.client.ApiException;
import org.openapitools.client.api.IdsApi;
import org.openapitools.client.api.LayoutsApi;
import org.openapitools.client.api.TagsApi;
import org.openapitools.client.model.AdaptiveStep;
import org.openapitools.client.model.DecodeResult;
import org.openapitools.client.model.FixedStep;
import org.openapitools.client.model.StepPolicy;
import org.openapitools.client.model.Tag;
import org.openapitools.client.model.TagChange;
import org.openapitools.client.model.TagCreate;

/** The client that openapi-generator makes for Java takes ids, creates a tag, and reads an id. */
public class Client {
    public static void main(String[] arguments) throws Exception {
        ApiClient client = new ApiClient();
        client.updateBaseUri(arguments[0]);
        IdsApi ids = new IdsApi(client);
        TagsApi tags = new TagsApi(client);
        LayoutsApi layouts = new LayoutsApi(client);

        check(ids.sequenceIdsByGet("java", 3, null, null, null).getIds().equals(List.of("1", "2", "3")), "ids");
        String flake = ids.snowflakeIdsByGet("default", 1, null, null).getIds().get(0);

        AdaptiveStep adaptive =
                new AdaptiveStep().policy(AdaptiveStep.PolicyEnum.ADAPTIVE).min("10").initial("20").max("30");
        Tag made = tags.createTag(new TagCreate().tag("java-made").start("5").step(new StepPolicy(adaptive)));
        check(made.getStep().getAdaptiveStep().getMax().equals("30"), made);
        TagCreate channel =
                new TagCreate().tag("java-channel").channel(TagCreate.ChannelEnum.UNORDERED).buffSize("70");
        check(tags.createTag(channel).getStep().getFixedStep().getStep().equals("70"), channel);
        FixedStep fixed = new FixedStep().policy(FixedStep.PolicyEnum.FIXED).step("7");
        Tag changed = tags.changeTag("java-made", new TagChange().step(new StepPolicy(fixed)).raiseTo("500"), null);
        check(changed.getWatermark().equals("499"), changed);
        try {
            tags.showTag("nobody", null);
            throw new AssertionError("the tag is unknown");
        } catch (ApiException error) {
            check(error.getCode() == 404 && error.getResponseBody().contains("tag-unknown"), error);
        }

        DecodeResult decoded = layouts.decodeId("1169786042799259000", null, null, null, "leaf", null);
        check(decoded.getFields().get("worker").getLong() == 39, decoded);
        check(!layouts.decodeId(flake, null, null, null, null, null).getCandidates().isEmpty(), flake);
        check(layouts.listLayouts().getLayouts().stream().anyMatch(one -> one.getName().equals("seata")), "seata");
    }

    private static void check(boolean holds, Object what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
