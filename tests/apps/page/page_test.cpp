#include "apps/page/page.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "apps/page/trace_picture.h"
#include "runs/output/chrome_trace.h"
#include "tests/support/run/made_up_run.h"

namespace spillway::testing {
namespace {

/// A run of two trials of which the second is better.
RunLog two_trials() {
  RunLog run;
  run.apply(made_up_run_event(2));
  for (auto& trial : run.trials) {
    trial.result.state = TrialState::done;
    trial.result.weights_xxh3 = "0123456789abcdef0123456789abcdef";
  }
  run.trials[0].result.eval_loss = 3;
  run.trials[1].result.eval_loss = 2;
  run.trials[1].parameters = {{"seed", "1e-3"}};
  return run;
}

std::vector<StepMetrics> rows(std::int64_t num_steps) {
  std::vector<StepMetrics> made;
  for (std::int64_t step = 1; step <= num_steps; ++step)
    made.push_back({.step = step, .loss = static_cast<double>(step)});
  return made;
}

TEST(Page, HasTheTrialsFromTheBestOn) {
  const RunLog run = two_trials();
  const Json data = page_data({.run = run,
                               .folder = "runs/x",
                               .state = "ended",
                               .metrics = {rows(1), rows(2)},
                               .trace = ""});
  EXPECT_EQ(data["best"],
            (Json{{"id", "t1"}, {"folder", "runs/x/trials/trial 1"}, {"value", 2.0}}));
  EXPECT_EQ(data["trials"][0]["id"], "t1");
  EXPECT_EQ(data["trials"][0]["values"], Json::array({0.001}));
  EXPECT_EQ(data["trials"][0]["loss"], (Json{{1, 1.0}, {2, 2.0}}));
  EXPECT_EQ(data["trials"][1]["loss"], Json::array({Json::array({1, 1.0})}));
  EXPECT_TRUE(data["timeline"].is_null());
}

TEST(Page, SaysFromWhichTrialACloneCame) {
  RunLog run = two_trials();
  run.trials[1].clone_of = 0;
  const Json data = page_data({.run = run,
                               .folder = "runs/x",
                               .state = "ended",
                               .metrics = {rows(1), rows(1)},
                               .trace = ""});
  EXPECT_EQ(data["trials"][0]["clone_of"], "t0");
  EXPECT_TRUE(data["trials"][1]["clone_of"].is_null());
}

TEST(Page, HasTheStrategyOfTheBestTrialWithOne) {
  RunLog run = two_trials();
  const PageInput input{
      .run = run, .folder = "runs/x", .state = "ended", .metrics = {rows(1), rows(1)}, .trace = ""};
  EXPECT_TRUE(page_data(input)["strategy"].is_null());
  run.trials[0].placement = {{"embed - h.0", {"O", ""}}, {"head", {"P", "P"}}};
  EXPECT_EQ(page_data(input)["strategy"],
            Json::parse(R"({"id": "t0", "lines": [["embed - h.0", ["O", ""]],
                                                  ["head", ["P", "P"]]]})"));
}

TEST(Page, DrawsMeansOfStepsForLongCurves) {
  const RunLog run = two_trials();
  const Json data = page_data(
      {.run = run, .folder = "x", .state = "ended", .metrics = {rows(100'000), {}}, .trace = ""});
  const Json& curve = data["trials"][1]["loss"];
  ASSERT_EQ(curve.size(), 500u);
  EXPECT_EQ(curve[0], (Json{200, 100.5}));
  EXPECT_EQ(curve[499][0], 100'000);
}

TEST(Page, LetsNoTextEndItsElement) {
  RunLog run = two_trials();
  run.name = "</script><script>alert(1)</script><!--";
  const Json data =
      page_data({.run = run, .folder = "\xFF", .state = "ended", .metrics = {{}, {}}, .trace = ""});
  const std::string page = html_page(data);
  EXPECT_EQ(page.find("alert(1)</script>"), std::string::npos);
  EXPECT_EQ(page.find("%DATA%"), std::string::npos);
  const auto begin = page.find("id=\"data\">") + std::string_view("id=\"data\">").size();
  const std::string inlined = page.substr(begin, page.find("</script>", begin) - begin);
  EXPECT_EQ(Json::parse(inlined)["name"], run.name);
}

TEST(Page, NamesNoOtherPlace) {
  const std::string page = kPageTemplate;
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
  for (const char* word : {"src=", "href=", "import", "@font-face", "url(", "fetch("})
    EXPECT_EQ(page.find(word), std::string::npos) << word;
}

TraceSpan span(TraceSpan::Track track, std::size_t job, double from_s, double to_s) {
  return {.track = track,
          .device = track == TraceSpan::Track::host_pool ? DeviceId() : DeviceId(0),
          .job = JobId(job),
          .name = "work",
          .started_s = from_s,
          .finished_s = to_s};
}

/// Pauses that no screen shows do not divide spans of one trial; another trial does.
TEST(Page, ShowsTheQueuesThatWorked) {
  using Track = TraceSpan::Track;
  const std::vector<TraceSpan> real{span(Track::compute, 0, 0, 1),
                                    span(Track::compute, 0, 1.001, 2),
                                    span(Track::compute, 1, 2, 3), span(Track::compute, 0, 5, 10),
                                    span(Track::host_pool, 1, 0, 0.5)};
  const std::vector<TraceSpan> planned{span(Track::to_device, 0, 0, 50)};
  std::vector<Trial> trials(2);
  trials[0].name = "a";
  trials[1].name = "b";
  const std::string trace = chrome_trace(trials, real, planned, {{1, 300, {7}}, {2, 200, {8}}});
  const TracePicture picture = picture_of(trace, {{"a", 1}, {"b", 0}});
  const Json& timeline = picture.timeline;
  EXPECT_EQ(timeline["rows"], (Json{"device 0 compute", "host pool"}));
  EXPECT_EQ(timeline["spans"],
            (Json{{0, 0.0, 2.0, 1}, {0, 2.0, 3.0, 0}, {0, 5.0, 10.0, 1}, {1, 0.0, 0.5, 0}}));
  EXPECT_EQ(timeline["end_s"], 10.0);
  EXPECT_EQ(picture.memory,
            (Json{{{"name", "device 0 memory"}, {"points", {{1.0, 7}, {2.0, 8}}}},
                  {{"name", "host memory"}, {"points", {{1.0, 300}, {2.0, 200}}}}}));
  for (const std::string& text : {std::string(), trace.substr(0, trace.size() / 2),
                                  std::string(R"({"traceEvents": [{"pid": 1}]})")}) {
    const TracePicture none = picture_of(text, {{"a", 0}});
    EXPECT_TRUE(none.timeline.is_null());
    EXPECT_TRUE(none.memory.empty());
  }
}

}  // namespace
}  // namespace spillway::testing
