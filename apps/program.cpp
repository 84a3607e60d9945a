#include "apps/program.h"

#include <CLI/CLI.hpp>
#include <exception>
#include <ostream>

#include "apps/findings.h"
#include "core/error.h"

namespace spillway {
namespace {

ExitCode fail(ExitCode code, const std::exception& error, std::ostream& log) {
  log << "spillway: " << error.what() << std::endl;
  return code;
}

ExitCode run(const Command& command, const Output& output) {
  try {
    return command(output);
  } catch (const DoesNotFit& error) {
    return fail(kDoesNotFit, error, output.log);
  } catch (const ConfigError& error) {
    return fail(kUsage, error, output.log);
  } catch (const ConfigErrors& error) {
    return fail(kUsage, error, output.log);
  } catch (const std::exception& error) {
    return fail(kTrialFailed, error, output.log);
  }
}

}  // namespace

ExitCode run_program(int argc, const char* const* argv, const Output& output) {
  CLI::App app("Spillway trains many models, each possibly larger than its device.", "spillway");
  app.require_subcommand(1);
  Command chosen;
  declare_train(app, chosen);
  declare_plan(app, chosen);
  declare_results(app, chosen);
  declare_doctor(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error, output.out, output.log) == 0 ? kDone : kUsage;
  }
  return run(chosen, output);
}

}  // namespace spillway
