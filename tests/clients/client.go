// The client that openapi-generator makes for Go takes ids, creates a tag, and reads an id.
package main

import (
	"context"
	"fmt"
	"os"
	"reflect"

	"unalike"
)

func check(holds bool, what ...interface{}) {
	if !holds {
		fmt.Fprintln(os.Stderr, what...)
		os.Exit(1)
	}
}

func main() {
	configuration := unalike.NewConfiguration()
	configuration.Servers = unalike.ServerConfigurations{{URL: os.Args[1]}}
	client := unalike.NewAPIClient(configuration)
	ctx := context.Background()

	ids, _, err := client.IdsAPI.SequenceIdsByGet(ctx, "go").Count(3).Execute()
	check(err == nil && reflect.DeepEqual(ids.Ids, []string{"1", "2", "3"}), ids, err)
	flakes, _, err := client.IdsAPI.SnowflakeIdsByPost(ctx, "default").Execute()
	check(err == nil && len(flakes.Ids) == 1, flakes, err)

	adaptive := unalike.NewAdaptiveStep("adaptive")
	adaptive.SetMin("10")
	adaptive.SetInitial("20")
	adaptive.SetMax("30")
	step := unalike.AdaptiveStepAsStepPolicy(adaptive)
	create := unalike.NewTagCreate("go-made")
	create.SetStep(step)
	made, _, err := client.TagsAPI.CreateTag(ctx).TagCreate(*create).Execute()
	check(err == nil && made.Step.AdaptiveStep.GetMax() == "30", made, err)
	channel := unalike.NewTagCreate("go-channel")
	channel.SetChannel("unordered")
	channel.SetBuffSize("70")
	made, _, err = client.TagsAPI.CreateTag(ctx).TagCreate(*channel).Execute()
	check(err == nil && made.Step.FixedStep.GetStep() == "70", made, err)
	_, response, err := client.TagsAPI.ShowTag(ctx, "nobody").Execute()
	check(err != nil && response.StatusCode == 404, response, err)

	decoded, _, err := client.LayoutsAPI.DecodeId(ctx, "1169786042799259000").Layout("leaf").Execute()
	check(err == nil && *decoded.GetFields()["worker"].Int64 == 39, decoded, err)
	guessed, _, err := client.LayoutsAPI.DecodeId(ctx, flakes.Ids[0]).Execute()
	check(err == nil && len(guessed.Candidates) > 0, guessed, err)
	layouts, _, err := client.LayoutsAPI.ListLayouts(ctx).Execute()
	check(err == nil && len(layouts.Layouts) > 20, layouts, err)
}
