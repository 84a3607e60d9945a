#pragma once

#include "models/exported/adapter_fields.h"
#include "models/families/family_fields.h"
#include "models/pieces/pieces_fields.h"
#include "runs/config/config.h"
#include "trainer/config/config_fields.h"

/// The fields of a configuration file, see core/base/field.h. `Config` is the struct, constant or
/// not.
namespace spillway {

template <typename Config, typename Visitor>
void visit_resources(Config& session, Visitor& v) {
  v.require_key("devices", "list at least one, such as [{kind: cpu, memory: 1GiB}]");
  v.list("devices", session.devices, "[{memory: 1GiB}]", "List of devices, see below.",
         [](auto& device, auto& item) { visit_device(device, item); });
  if (v.shows(!session.links.empty())) {
    v.list(
        "links", session.links, "[{between: [0, 1], rate: 2GB/s}]",
        "List of links between devices, see below. Without one, a copy from device to device "
        "shares the receiver's link with the host.",
        [](auto& link, auto& item) { visit_link(link, item); }, InContract::no, MayBeEmpty::yes);
  }
  v.field(
      "numerics", session.numerics, kAny,
      "With which kernels LibTorch computes on CPUs: the fastest of the processor (`native`), or "
      "slower ones that give the same bits on every x86-64 processor with AVX2 and FMA "
      "(`portable`), see [Exactness](exactness.md#portable-numerics).",
      InContract::by_content);
  v.field("host_memory", session.host_memory, SizeRange{},
          "Limit of host memory for the training state of all running trials. Trials that do not "
          "fit wait.");
  v.field("activation_share", session.activation_share, kActivationShare,
          "Part of each device's memory reserved for activations. With 0, activations share the "
          "whole budget; on GPUs, whose memory is one piece, 0 means a quarter or, if trials do "
          "not fit with it, the first of 0.5, 0.75, 0.9 and 0.1 with which all do.");
  v.field("offload_path", session.offload_path, kAny,
          "Folder for files that hold the training state instead of host memory. Spillway reserves "
          "their space before training; the system keeps the parts in use in memory.");
}

template <typename Config, typename Visitor>
void visit_top(Config& run, Visitor& v) {
  v.field("name", run.name, kAny, "Name of the run.");
  v.field("output_dir", run.output_dir, kAny,
          "Folder for all outputs; `runs/NAME` by default. An existing run is replaced only with "
          "`--overwrite`, which removes the files that the run wrote and no others. The folder "
          "must not lie inside a folder of `data.path`.");
  v.field("resume", run.resume, kAny,
          "`auto`: `train` resumes the run in `output_dir` if there is one.");
  v.field("report_to", run.report_to, kAny,
          "`tensorboard`: each trial also has an event file for TensorBoard, with its metrics and "
          "swept values, beside its `metrics.csv`.");
  visit_seed(run.train, v);
  visit_resources(run.session, v);
  v.field("data_root", run.data_root, kAny,
          "Base of relative paths in `data.path` and `model.path`, by default the current folder; "
          "a resumed run "
          "uses the folder of the first start.");
}

template <typename Config, typename Visitor>
void visit_torch(Config& torch, Visitor& v) {
  v.require_key("path", "name the file that spillway.from_torch wrote");
  v.field(
      "path", torch.path, kAny,
      "File of the model, as `spillway.from_torch` writes it (`.spw`). It decides the size of a "
      "virtual node, `train.dtype`, the loss and the metrics.",
      InContract::by_content);
  if (v.shows(torch.pieces != TorchPieces{})) {
    v.section("pieces", [&](auto& pieces) { visit_torch_pieces(torch.pieces, pieces); });
  }
}

template <typename Config, typename Visitor>
void visit_model(Config& run, Visitor& v) {
  v.field("family", run.family, kAny,
          "`gpt`: GPT-2 (pre-norm, learned positions, tied embedding, GELU by tanh; "
          "`models/families/gpt.h` lists its parameter names in GPT-2). `mlp`: multilayer "
          "perceptron that classifies. `resnet`: residual network with batch normalization that "
          "classifies pictures. `cnn`: any graph of convolutions that classifies pictures, or a "
          "known one. `rnn`: LSTMs over tokens, as a language model, classifier or translation. "
          "`torch`: a model of PyTorch, from a file.",
          InContract::yes);
  if (v.applies(run.family == ModelFamily::gpt)) visit_gpt(run.gpt, v);
  if (v.applies(run.family == ModelFamily::mlp)) visit_mlp(run.mlp, v);
  if (v.applies(run.family == ModelFamily::resnet)) visit_resnet(run.resnet, v);
  if (v.applies(run.family == ModelFamily::cnn)) visit_cnn(run.cnn, v);
  if (v.applies(run.family == ModelFamily::rnn)) visit_rnn(run.rnn, v);
  if (v.applies(run.family == ModelFamily::torch)) visit_torch(run.torch, v);
}

template <typename Config, typename Visitor>
void visit_adapter(Config& adapter, Visitor& v) {
  v.field(
      "type", adapter.type, kAny,
      "`lora`: low-rank matrices beside linear layers, with the names and the arithmetic of PEFT.",
      InContract::yes);
  visit_lora(adapter.lora, v);
}

template <typename Config, typename Visitor>
void visit_data(Config& data, Visitor& v) {
  v.field("format", data.format, kAny,
          "For a `gpt` or `rnn`: `bytes` (each byte is a token) or `tokens` (files of token "
          "numbers, as tokenizers write them, all below `vocab_size`). For an `mlp`, `resnet` or "
          "`cnn`: "
          "`digits` (lines of 64 pixels from 0 to 16 and a digit, separated by commas). For a "
          "`cnn` also `tensors`: one safetensors file with whole numbers `images` `[samples, "
          "num_channels, image_size, image_size]` and `labels` `[samples]`. For a `torch`: "
          "`tensors` (one safetensors file with a tensor `[samples, ...]` for each input of the "
          "model, by its name, or one tensor `rows`), or any other format whose samples are its "
          "rows.",
          InContract::yes);
  if (v.applies(data.format == DataFormat::tokens)) {
    v.field("dtype", data.dtype, kAny, "Type of `tokens`, little-endian.", InContract::by_content);
  }
  if (v.applies(data.format == DataFormat::digits)) {
    v.field("augment", data.augment, kAny,
            "`shift` moves each training picture of `digits` randomly by up to one pixel in each "
            "direction.",
            InContract::yes);
  }
  v.require_key("path", "write a file or a folder, or a list of them");
  v.field("path", data.paths, TextList{},
          "A file, a folder (all files below it), or a list of these. The files must not change "
          "during the run: a trial that reads a changed file fails and names it.",
          InContract::by_content);
  v.field("eval_fraction", data.eval_fraction, NumberRange{.min = 0, .max = 1, .below_max = true},
          "Part of the samples, the last ones, reserved for evaluation. Omit it with "
          "`eval_path`; it is then 0.",
          InContract::by_content);
  if (v.shows(!data.eval_paths.empty())) {
    v.field(
        "eval_path", data.eval_paths, TextList{.may_be_empty = true},
        "Samples for evaluation only, like `path`. Then all samples of `path` are for training.",
        InContract::by_content);
  }
}

/// The other way to give train.max_steps.
template <typename Config, typename Visitor>
void visit_epochs(Config& run, Visitor& v) {
  if (!v.shows(run.num_train_epochs > 0)) return;
  v.field("num_train_epochs", run.num_train_epochs, kAboveZero,
          "Use instead of `max_steps`: number of passes over the training samples, rounded up to "
          "whole steps. `config.yaml` records the steps, unless they differ between trials.");
}

template <typename Config, typename Visitor>
void visit_strategy(Config& run, Visitor& v) {
  if (!v.shows(!run.strategy.empty())) return;
  v.field(
      "strategy", run.strategy, kAny,
      "A [strategy file](formats.md#strategies): which devices compute which layers, pieces and "
      "parts of the batch. It does not change the result. Instead of `data_parallel`, unless the "
      "file has a strategy for each number of devices.");
}

template <typename Config, typename Visitor>
void visit_order(Config& train, Visitor& v) {
  v.field(
      "order", train.order, kAny,
      "`shard_major`: load a shard once and run all virtual nodes through it. `vn_major`: run "
      "virtual node by virtual node, for models that fit. `auto`: by the budget and the hosts.");
}

template <typename Config, typename Visitor>
void visit_scheduling(Config& run, Visitor& v) {
  v.field("policy", run.session.policy, kAny,
          "Which trial's shard runs next: longest remaining time (`lrtf`), shortest remaining time "
          "(`srtf`), order of submission (`fifo`), in turn (`round_robin`), fixed pseudo-random "
          "order (`random`).");
  v.field("sharing", run.session.sharing, kAny,
          "How many devices each trial gets: what it asks for (`none`); all or nothing by priority "
          "(`priority`); in proportion to priority, as powers of two (`wfs`); one, and more where "
          "they reduce the remaining time most (`fill`). Several trials on several devices use "
          "`fill` if nothing else is given, see below.");
  visit_order(run.train, v);
  v.field("double_buffer", run.session.double_buffer, kAny,
          "Load the next shard while the device computes.");
  v.field("device_timeout", run.session.device_timeout_s, NumberRange{.min = 1, .max = 86400},
          "Seconds. A device without a sign of life for this long, and for 20 times the planned "
          "duration of its work, is lost; the remaining devices repeat the step. If no "
          "device is left for a trial, it fails; the others continue.");
}

template <typename Config, typename Visitor>
void visit_sweep(Config& sweep, Visitor& v) {
  v.field("method", sweep.method, kAny,
          "`grid`: every combination is a trial. `random`: each trial draws its values.");
  v.field("run_cap", sweep.run_cap, IntRange{0, kMaxTrials},
          "Maximum number of trials; required for `random`; 0: the whole grid.");
  v.field("seed", sweep.seed, kAny,
          "Seed of the draws, by default that of the run; the same file always gives the same "
          "trials.");
  v.field(
      "share", sweep.share, kAny,
      "`2/4`: only the 2nd, 6th, 10th, ... trial, for sweeps that are [divided among "
      "machines](guide/sweep.md#divide-a-sweep-among-machines). Not with `early_terminate`, which "
      "compares all trials.");
  v.section("metric", [&](auto& metric) {
    metric.field(
        "name", sweep.metric.name, kAny,
        "What ranks the trials, at their end and where early stopping compares them: loss "
        "on the evaluation data, training loss, or on the evaluation data `accuracy` (mlp, "
        "resnet, cnn, an rnn that classifies) or `perplexity` (gpt, other rnn); of a `torch` "
        "model, those that it has.");
    metric.field("goal", sweep.metric.goal, kAny, "Whether smaller or larger values are better.");
  });
}

template <typename Config, typename Visitor>
void visit_hosts(Config& hosts, Visitor& v) {
  v.field("size", hosts.size, IntRange{.min = 1, .max = 1024},
          "Number of hosts that train together, each with a part of the reduction groups. These "
          "keys do not affect the result. Under `torchrun` and `srun`, `size`, `number` and "
          "`endpoint` come from the environment, see [Several machines](guide/hosts.md).");
  v.field("number", hosts.number, IntRange{.min = 0, .max = 1023},
          "The number of this host, from 0. Host 0 writes the run's outputs.");
  if (v.shows(!hosts.endpoint.empty())) {
    v.field("endpoint", hosts.endpoint, kAny,
            "`HOST:PORT`, where host 0 listens and the others find it.");
  }
  if (v.shows(!hosts.address.empty())) {
    v.field("address", hosts.address, kAny,
            "The address at which others reach this host; by default the one from which it reaches "
            "`endpoint`.");
  }
  v.field("start_size", hosts.start_size, IntRange{.min = 0, .max = 1024},
          "Fewest hosts with which training begins if others have not come after `timeout_s`; 0: "
          "all must come. With `size: 1` and `start_size: 1`, one host begins, and others can join "
          "it at `endpoint`.");
  v.field("min_size", hosts.min_size, IntRange{.min = 1, .max = 1024},
          "Fewest hosts that go on when others are lost. With fewer, training ends, and can be "
          "resumed.");
  v.field(
      "timeout_s", hosts.timeout_s, NumberRange{.min = 0, .above_min = true},
      "Seconds for which a host waits for another one: at the start, at the end, and for a sign of "
      "life meanwhile.");
  v.field("network_rate", hosts.network_bytes_per_s,
          RateRange{.min = 1_KiB, .may_be_unlimited = false},
          "What a host sends to others in a second, and receives at the same time. Simulations use "
          "it, and a plan has more shards for a slower network; no bit depends on it.");
  v.field("network_latency", hosts.network_latency_s, NumberRange{.min = 0, .max = 60},
          "Seconds from the end of sending to the end of receiving, for plans and simulations.");
  if (v.shows(!hosts.token_file.empty())) {
    v.field(
        "token_file", hosts.token_file, kAny,
        "A file with a secret, the same on all hosts: they prove that they have it, and what "
        "they send is encrypted. Required where hosts listen at other addresses than 127.0.0.1, "
        "unless you trust the network.");
  }
  v.field(
      "trust_network", hosts.trust_network, kAny,
      "Without a token, also listen at other addresses than 127.0.0.1. Whoever reaches them can "
      "read the training and change it.");
  v.field(
      "backend", hosts.backend, kAny,
      "What carries gradients between hosts, the same on all: Gloo through host memory, or NCCL "
      "from GPU to GPU, which needs `trust_network`, see [Several machines](guide/hosts.md#nccl).");
  v.field(
      "state", hosts.state, kAny,
      "Where the moments of the optimizer are, the same on all hosts: `replicated` on every host; "
      "`sharded`, each on the host that updates these weights; or `shadowed`, each on two hosts. "
      "With bf16 the fp32 weights are divided the same way. `sharded` takes least memory; when a "
      "host is lost, training goes on from the newest checkpoint, and with `shadowed` from the "
      "last step, see [Several machines](guide/hosts.md#shard-the-optimizers-state).");
}

/// All sections but the sweep.
template <typename Config, typename Visitor>
void visit_run(Config& run, Visitor& v) {
  visit_top(run, v);
  v.section("model", [&](auto& model) { visit_model(run, model); });
  v.section("data", [&](auto& data) { visit_data(run.data, data); });
  v.section("train", [&](auto& train) {
    visit_train(run.train, train);
    visit_epochs(run, train);
    visit_strategy(run, train);
  });
  v.section("scheduling", [&](auto& scheduling) { visit_scheduling(run, scheduling); });
  v.section("checkpoint", [&](auto& checkpoint) { visit_checkpoint(run.checkpoint, checkpoint); });
  if (v.shows(run.session.hosts.several())) {
    v.section("hosts", [&](auto& hosts) { visit_hosts(run.session.hosts, hosts); });
  }
}

}  // namespace spillway
