#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <ostream>

#include "apps/cli/cli.h"
#include "apps/cli/completion.h"
#include "apps/commands/doctor_command.h"
#include "apps/commands/plan_command.h"
#include "apps/commands/report_command.h"
#include "apps/commands/results_command.h"
#include "apps/commands/train_command.h"
#include "apps/commands/trial_commands.h"
#include "apps/commands/verify_command.h"
#include "apps/terminal/signals.h"
#include "runs/config/config.h"
#include "runs/folder/cache_file.h"

namespace spillway {
namespace {

/// A subcommand whose options are parsed into an `Options` and then passed to `run`.
template <typename Options, typename Run>
CLI::App& add_command(CLI::App& app, Command& chosen, const char* name, const char* description,
                      const std::shared_ptr<Options>& options, const Run& run) {
  CLI::App* const command = app.add_subcommand(name, description);
  command->callback([options, run, &chosen] {
    chosen = [options, run](const Output& output) { return run(*options, output); };
  });
  return *command;
}

void add_config(CLI::App& command, std::string& file) {
  command.add_option("config", file, "Configuration of the run")->required()->type_name(kYamlFile);
}

void add_folder(CLI::App& command, std::string& folder) {
  command.add_option("folder", folder, "The run's output_dir")->required()->type_name(kFolder);
}

void add_overrides(CLI::App& command, std::vector<std::string>& overrides) {
  command.add_option("overrides", overrides, "Values to replace, such as train.max_steps=10")
      ->type_name(kOverride);
}

void add_json(CLI::App& command, bool& json, const char* description) {
  command.add_flag("--json", json, description)->disable_flag_override();
}

/// Runs a command that trains, with signals and progress.
template <typename Options, typename Work>
ExitCode run_training(Options& options, const Output& output, const Work& work) {
  options.pilot_cache = pilot_cache_file();
  options.progress_file = options.json ? output.log_file : output.out_file;
  return work(options, output.out, output.log, requests_by_signals());
}

void declare_train(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<TrainOptions>();
  CLI::App& command = add_command(
      app, chosen, "train", "Train the trials of a configuration", options,
      [](TrainOptions& of, const Output& output) { return run_training(of, output, train); });
  add_config(command, options->config_file);
  add_overrides(command, options->overrides);
  add_json(command, options->json, "Print one JSON document on stdout, progress on stderr");
  command.add_flag("--overwrite", options->overwrite, "Replace the outputs of an earlier run");
  command.footer(
      R"(Before training, it measures the layers, fits each model to the budgets, and simulates
the run. Ctrl-C, SIGTERM and SIGHUP save a checkpoint of each trial and end the run with its results;
a second Ctrl-C ends it at once. SIGUSR1 (kill -USR1 PID) prints the state of all devices, trials
and copies on stderr.

Examples:
  spillway train sweep.yaml --overwrite
  spillway train sweep.yaml output_dir=/tmp/run train.max_steps=10
  spillway train sweep.yaml --json 2>/dev/null | jq '.trials[].eval_loss'

Outputs: events.jsonl, results.csv, plan.json, trace.json, config.yaml and, for each trial,
metrics.csv and weights.safetensors, in output_dir (default: runs/NAME).

Exit codes: 0 done, 1 a trial failed or a file cannot be written, 2 usage or configuration error,
3 does not fit, 130 interrupted.)");
}

void declare_join(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<JoinOptions>();
  CLI::App& command = add_command(
      app, chosen, "join", "Join a run of several hosts, which host 0 has started", options,
      [](JoinOptions& of, const Output& output) { return run_training(of, output, join); });
  command.add_option("endpoint", options->endpoint, "Where host 0 listens")
      ->required()
      ->type_name("HOST:PORT");
  add_overrides(command, options->overrides);
  command.footer(
      R"(Host 0 is 'spillway train' with hosts.size and hosts.endpoint; it begins once all hosts have
joined. With hosts.start_size=1 instead of hosts.size it begins alone. Further hosts can join while
others train. The joining host gets the configuration from host 0 and trains its part of each step.
Host 0 writes the outputs; if it is lost, another host takes its place. The data must have the same
path here, output_dir must be in a folder that all hosts share, and devices may differ.

Examples:
  spillway train gpt.yaml hosts.size=2 hosts.endpoint=10.0.0.1:29400 hosts.token_file=token
  spillway join 10.0.0.1:29400 hosts.token_file=token devices='[{memory: 4GiB}]'

Exit codes: as for train.)");
}

void declare_resume(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<ResumeOptions>();
  CLI::App& command = add_command(
      app, chosen, "resume", "Resume a run that was interrupted or killed", options,
      [](ResumeOptions& of, const Output& output) { return run_training(of, output, resume); });
  add_folder(command, options->folder);
  add_overrides(command, options->overrides);
  command.add_flag("--retry-failed", options->retry_failed, "Also resume trials that failed");
  command
      .add_option("--trial", options->trial, "Also resume this one, which was paused or stopped")
      ->type_name(kTrial);
  add_json(command, options->json, "Print one JSON document on stdout, progress on stderr");
  command.footer(
      R"(Trials that have ended keep their results. Each other trial resumes from its newest
intact checkpoint, or from the beginning if it has none. The results are bit-identical to those of
an uninterrupted run. You may override devices, budgets and all other settings that do not change
results; data and paths come from config.yaml in the folder. Signals work as in train.

More draws (sweep.run_cap) or more values of a grid (sweep.parameters) add trials; more steps
(train.max_steps, train.num_train_epochs) continue all trials that early stopping has not ended.
config.yaml in the folder is changed accordingly. Trials that you paused or stopped remain so.

Failed trials are skipped. Use --retry-failed once you have fixed the cause, such as a full disk
or a lost device.

Examples:
  spillway resume runs/sweep
  spillway resume runs/sweep devices='[{memory: 4GiB}]'
  spillway resume runs/sweep --retry-failed
  spillway resume runs/sweep sweep.run_cap=40
  spillway resume runs/sweep train.max_steps=240 train.lr_scheduler_extend=stretch
  spillway resume runs/sweep --trial 'learning_rate=1e-3'

Exit codes: as for train; also 2 if an override changes the contract of a checkpoint.)");
}

void add_trial(CLI::App& command, std::string& trial) {
  command.add_option("trial", trial, "Name of the trial, long or short, as in results")
      ->required()
      ->type_name(kTrial);
}

struct CallOptions {
  std::string folder;
  CallForTrial call;
};

CLI::App& declare_call(CLI::App& app, Command& chosen, const char* name, TrialCall call,
                       const char* description) {
  const auto options = std::make_shared<CallOptions>();
  options->call.call = call;
  CLI::App& command = add_command(app, chosen, name, description, options,
                                  [](const CallOptions& of, const Output& output) {
                                    return call_for_trial(of.folder, of.call, output.out);
                                  });
  add_folder(command, options->folder);
  add_trial(command, options->call.trial);
  return command;
}

void declare_stop(CLI::App& app, Command& chosen) {
  declare_call(app, chosen, "stop", TrialCall::stop, "Stop one trial of a run")
      .footer(
          R"(The process that trains the run ends the trial after its current step and saves a checkpoint.
The command returns once the call is durable: the trial stays stopped even if that process is
killed. If no process trains the run, a later resume leaves the trial out. 'spillway resume DIR
--trial TRIAL' reverses it.

Examples:
  spillway stop runs/sweep 'learning_rate=1e-2'
  spillway stop runs/sweep t03

Exit codes: 0 done, 2 not a run, no such trial, or it has ended.)");
}

void declare_pause(CLI::App& app, Command& chosen) {
  declare_call(app, chosen, "pause", TrialCall::pause, "Pause one trial of a run")
      .footer(
          R"(The trial waits after its current step, saves a checkpoint and keeps its host memory, until
'spillway resume DIR --trial TRIAL', which works during the run and after it. The run ends once only
paused trials are left. Like stop, the call is durable when the command returns.

Example:
  spillway pause runs/sweep 'learning_rate=1e-2'

Exit codes: 0 done, 2 not a run, no such trial, or it has ended.)");
}

struct ExtendOptions : ResumeOptions {
  std::int64_t steps = 0;
};

void declare_extend(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<ExtendOptions>();
  CLI::App& command = add_command(
      app, chosen, "extend", "Train one trial for more steps", options,
      [](ExtendOptions& of, const Output& output) {
        const auto extend_trial = [&](const ResumeOptions& resume, auto&&... rest) {
          return extend(resume, of.steps > 0 ? std::optional(of.steps) : std::nullopt, rest...);
        };
        return run_training(of, output, extend_trial);
      });
  add_folder(command, options->folder);
  add_trial(command, options->trial);
  command.add_option("steps", options->steps, "New number of steps; default: the current number")
      ->check(CLI::PositiveNumber.description(""))
      ->type_name("STEPS");
  add_overrides(command, options->overrides);
  add_json(command, options->json, "Print one JSON document on stdout, progress on stderr");
  command.footer(
      R"(A trial that early stopping has ended continues from its rung, and is not stopped early
again. A trial that is done needs STEPS, and train.lr_scheduler_extend where its schedule has an
end.
If a process trains the run, it trains the steps once the trial has ended, at once if it has ended
before; the command returns once the call is durable. If not, the command resumes the run.

Examples:
  spillway extend runs/sweep 'learning_rate=1e-2'
  spillway extend runs/sweep 'learning_rate=1e-3' 240 train.lr_scheduler_extend=restart

Exit codes: as for resume; also 2 if there is no such trial, or it would not get longer.)");
}

void declare_add(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<ResumeOptions>();
  CLI::App& command = add_command(
      app, chosen, "add", "Add one trial to a run", options,
      [](ResumeOptions& of, const Output& output) { return run_training(of, output, add); });
  add_folder(command, options->folder);
  command.add_option("values", options->overrides, "Its values; other keys are as in config.yaml")
      ->required()
      ->type_name(kOverride);
  add_json(command, options->json, "Print one JSON document on stdout, progress on stderr");
  command.footer(
      R"(The trial becomes an entry of sweep.trials in the run's config.yaml. If a process trains
the run, it trains the trial at once, and the command returns once that is durable. If not, the
command resumes the run.

Example:
  spillway add runs/sweep train.learning_rate=2e-3 model.dropout=0.1

Exit codes: as for resume.)");
}

CLI::App& declare_change(CLI::App& app, Command& chosen, const char* name,
                         decltype(set)* command_body, const char* description) {
  const auto options = std::make_shared<ResumeOptions>();
  CLI::App& command = add_command(app, chosen, name, description, options,
                                  [command_body](ResumeOptions& of, const Output& output) {
                                    return run_training(of, output, command_body);
                                  });
  add_folder(command, options->folder);
  add_trial(command, options->trial);
  command.add_option("values", options->overrides, "Its new values")->type_name(kOverride);
  add_json(command, options->json, "Print one JSON document on stdout, progress on stderr");
  return command;
}

void declare_set(CLI::App& app, Command& chosen) {
  CLI::App& command =
      declare_change(app, chosen, "set", set, "Change values of a trial during training");
  command.get_option("values")->required();
  command.footer(
      R"(The values are train.learning_rate (its schedule keeps its shape), train.weight_decay and
train.max_grad_norm. The trial has them from its next commit on, which the command prints; they are
durable when it returns, and a resumed run repeats them at the same step. config.yaml stays as it is.
If no process trains the run, the command resumes it. A trial that has ended is cloned instead.

Example:
  spillway set runs/sweep t03 train.learning_rate=1e-4

Exit codes: as for resume; also 2 if there is no such trial, or it has ended.)");
}

void declare_clone(CLI::App& app, Command& chosen) {
  declare_change(app, chosen, "clone", clone, "Start a trial from the state of another")
      .footer(
          R"(The clone begins from the newest commit of the trial, or, if it has ended, from its newest
checkpoint, with the values of set, and with more steps: train.max_steps, and train.lr_scheduler_extend
where its schedule has an end. The trial itself goes on as it was. The clone is named TRIAL-clone, and
results name its source.
If a process trains the run, it trains the clone at once, and the command returns once that is
durable. If not, the command resumes the run.

Examples:
  spillway clone runs/sweep t03 train.learning_rate=1e-4
  spillway clone runs/sweep t03 train.max_steps=400 train.lr_scheduler_extend=restart

Exit codes: as for resume; also 2 if there is no such trial.)");
}

/// Returns the option that trains.
CLI::Option* add_search(CLI::App& command, SearchOptions& options, CLI::Option* largest) {
  CLI::Option* const search = command
                                  .add_option("--search", options.file,
                                              "Search for the strategy that makes the run fastest, "
                                              "write it to FILE, and plan with it")
                                  ->type_name("FILE")
                                  ->excludes(largest);
  command
      .add_option("--proposals", options.proposals,
                  "With --search: strategies to simulate, 4000 by default")
      ->check(CLI::PositiveNumber.description(""))
      ->type_name("NUMBER")
      ->needs(search);
  command.add_option("--seed", options.seed, "With --search: of its draws, 1 by default")
      ->type_name("NUMBER")
      ->needs(search);
  CLI::Option* const verify =
      command
          .add_flag("--verify", options.verify,
                    "With --search: train some steps with each strategy of the table")
          ->disable_flag_override()
          ->needs(search);
  command
      .add_flag("--suggest-pieces", options.suggest_pieces,
                "With --search: also search with other model.pieces, which change bits")
      ->disable_flag_override()
      ->needs(search);
  return verify;
}

void declare_plan(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<PlanOptions>();
  CLI::App& command = add_command(app, chosen, "plan",
                                  "Predict a run: whether it fits, shards, memory, traffic, time",
                                  options, [](PlanOptions& of, const Output& output) {
                                    of.pilot_cache = pilot_cache_file();
                                    return plan(of, output.out);
                                  });
  add_config(command, options->config_file);
  add_overrides(command, options->overrides);
  CLI::Option* const largest =
      command
          .add_flag("--largest", options->largest, "Plan the largest model of the family that fits")
          ->disable_flag_override();
  command
      .add_option("--step-seconds", options->most_step_s,
                  "With --largest: most seconds that a step may take")
      ->check(CLI::PositiveNumber.description(""))
      ->type_name("SECONDS")
      ->needs(largest);
  CLI::Option* const verify = add_search(command, options->search, largest);
  command.add_flag("--no-pilot", options->estimate, "Estimate costs from shapes; measure nothing")
      ->excludes(verify);
  add_json(command, options->json, "Print one JSON document instead of tables");
  command.footer(
      R"(It measures the layers, then runs the scheduler on a virtual clock. It shows which
trials fit, what each needs of devices, host and disk, the shards, bytes moved, peaks and time, and
compares the run with the memory and the free disk of this machine. If the run does not fit, it tries
changes and prints those that help. It writes nothing but the cache of measured costs and the FILE of
--search.

Examples:
  spillway plan sweep.yaml
  spillway plan sweep.yaml devices='[{memory: 64MiB}]'
  spillway plan sweep.yaml --largest --step-seconds 2.5
  spillway plan run.yaml --search strategy.yaml

Exit codes: 0 everything fits, 2 usage or configuration error, 3 a trial does not fit its budgets, or
the run does not fit this machine.)");
}

void declare_results(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<ResultsOptions>();
  CLI::App& command =
      add_command(app, chosen, "results", "Show the results of a run, finished or running", options,
                  [](const ResultsOptions& of, const Output& output) {
                    return results(of, output.out, output.log);
                  });
  add_folder(command, options->folder);
  command.add_option("--top", options->top, "Show only the N best trials")
      ->check(CLI::PositiveNumber.description(""))
      ->type_name("N");
  add_json(command, options->json, "Print the JSON document of train instead of tables");
  command.footer(
      R"(Trials are sorted by sweep.metric, the best first; those without a value come last. The best
trial and its folder follow. The JSON document has the swept values and the metric of each trial,
and the best trial. Without --top it lists all trials in the order of the sweep.

It reads only events.jsonl, so it works during a run and after a crash. It then says
that the run has not ended; values that are not known yet are null in the document.

Examples:
  spillway results runs/sweep
  spillway results runs/sweep --top 5
  spillway results runs/sweep --json | jq -r .best.folder

Exit codes: 0 done, 1 damaged lines of the log were skipped, 2 not a run.)");
}

void declare_report(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<ReportOptions>();
  CLI::App& command = add_command(
      app, chosen, "report", "Write an HTML page about a run, finished or running", options,
      [](const ReportOptions& of, const Output& output) { return report(of, output.out); });
  add_folder(command, options->folder);
  command.add_option("-o,--output", options->file, "File to write (default: DIR/report.html)")
      ->type_name("FILE");
  command.footer(
      R"(The page shows the trials, loss curves, swept values against sweep.metric, and what the
devices did. It is one file that needs no network and no other file. The devices appear once the
run has ended, because trace.json is written then.

Examples:
  spillway report runs/sweep
  spillway report runs/sweep -o /tmp/sweep.html

Exit codes: 0 done, 2 not a run.)");
}

void declare_verify(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<VerifyOptions>();
  CLI::App& command = add_command(
      app, chosen, "verify", "Check a run's checkpoints, final weights and log", options,
      [](const VerifyOptions& of, const Output& output) { return verify(of, output.out); });
  add_folder(command, options->folder);
  add_json(command, options->json, "Print one JSON document instead of a table");
  command.footer(R"(It reads every byte, compares it with its hash, and changes nothing.

Exit codes: 0 everything is intact, 1 something is damaged or missing, 2 not a run.)");
}

void declare_doctor(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<DoctorOptions>();
  CLI::App& command = add_command(
      app, chosen, "doctor", "Show versions, devices, memory and measured rates", options,
      [](const DoctorOptions& of, const Output& output) { return doctor(of, output.out); });
  add_json(command, options->json, "Print one JSON document instead of text");
  command.footer("It takes about a second. Exit code: 0.");
}

void declare_completion(CLI::App& app, Command& chosen) {
  const auto shell = std::make_shared<std::string>();
  CLI::App& command = add_command(
      app, chosen, "completion", "Print a completion script for a shell", shell,
      [&app](const std::string& name, const Output& output) {
        const auto keys = config_keys();
        output.out << (name == "bash" ? bash_completion(app, keys) : zsh_completion(app, keys));
        return kDone;
      });
  command.add_option("shell", *shell, "Name of the shell")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh"}).description(""))
      ->type_name("bash|zsh");
  command.footer(R"(Examples:
  source <(spillway completion bash)
  spillway completion zsh > ~/.zsh/completions/_spillway)");
}

/// A hidden command: scripts/configuration_page.py makes docs/configuration.md from its output.
void declare_configuration_tables(CLI::App& app, Command& chosen) {
  app.add_subcommand("configuration-tables")->group("")->callback([&chosen] {
    chosen = [](const Output& output) {
      output.out << reference_tables();
      return kDone;
    };
  });
}

}  // namespace

void declare_commands(CLI::App& app, Command& chosen) {
  declare_train(app, chosen);
  declare_join(app, chosen);
  declare_resume(app, chosen);
  declare_stop(app, chosen);
  declare_pause(app, chosen);
  declare_extend(app, chosen);
  declare_add(app, chosen);
  declare_set(app, chosen);
  declare_clone(app, chosen);
  declare_plan(app, chosen);
  declare_results(app, chosen);
  declare_report(app, chosen);
  declare_verify(app, chosen);
  declare_doctor(app, chosen);
  declare_completion(app, chosen);
  declare_configuration_tables(app, chosen);
}

}  // namespace spillway
