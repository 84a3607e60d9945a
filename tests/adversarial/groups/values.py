"""Is every value that cannot be meant refused, by its field, before anything is written?"""

import json

from groups.contracts import MLP, RESNET
from run import Run
from scene import Attempt
from steps import config_text, furnish, has_text, is_absent, text_of

WORDS = ["x", "[1]", "{a: 1}", "''"]
WHOLE = ["1.5", "-1", "99999999999999999999", "0x10", "1e3", "' 1'"]
NUMBER = ["nan", "inf", "-1", "1e999", "1,5", "0x1p3"]
SIZE = ["lots", "-1MiB", "1.5", "1XB", "99999999999GiB", "1MiB MiB", "0"]
CHOICE = ["nothing", "[a]", "GPT "]

# By key, values that are refused. The message names the key, or the field beside the value.
BAD = {
    "name": ["[a]", "{a: 1}", "''"],
    "output_dir": ["[a]", "''", "text.txt", "text.txt/r", "/proc/r", "x" * 300],
    "resume": ["yes", "true", "always"],
    "seed": ["-1", "1.5", "18446744073709551616", "x", "[1]"],
    "host_memory": [size for size in SIZE if size != "1.5"],
    "activation_share": ["-0.1", "1", "0.95", "x", "nan"],
    "offload_path": ["nowhere", "text.txt", "/proc", "[a]"],
    "data_root": ["[a]", "nowhere"],
    "model.family": ["llama", "''", "[gpt]"],
    "model.num_hidden_layers": ["0", "1025", *WORDS, "1.5"],
    "model.hidden_size": ["0", "33", "16777217", "1.0"],
    "model.num_attention_heads": ["0", "3", "64", "x"],
    "model.intermediate_size": ["-1", "x", "16777217"],
    "model.max_position_embeddings": ["0", ("16777216", "data.path"), "1e2"],
    "model.vocab_size": ["255", "0", "x", "-256"],
    "model.dropout": ["1", "-0.1", "1.5", *NUMBER[:2]],
    "model.initializer_range": ["-1", "nan", "x"],
    "model.layer_norm_eps": ["-1", "inf", "x"],
    "model.freeze": ["nothing.*", "{a: 1}", "[[a]]"],
    "data.format": ["csv", "''", "[bytes]"],
    "data.path": ["nowhere.txt", "''", "[]", "{a: b}", "[text.txt, nowhere.txt]", "/dev/null"],
    "data.eval_fraction": ["1", "-0.1", "nan", "0.99999999"],
    "train.batch_size": ["0", "3", *WHOLE, *WORDS],
    "train.virtual_nodes": ["-1", "3", "65537", "x"],
    "train.reduction_groups": ["-1", "3", "8", "x"],
    "train.data_parallel": ["0", "2", "many", "1.5", "Auto"],
    "train.max_data_parallel": ["-1", "9", "x"],
    "train.autoscale": ["throughput", "{rule: fast}", "[{threshold: 1}]",
                        "{rule: throughput, threshold: nan}", "{rule: straggler, share: 2}"],
    "train.priority": ["0", "101", "x"],
    "train.max_steps": ["0", "-1", "1000000000001", "1e3", "x"],
    "train.dtype": ["fp16", "BF16", "float32"],
    "train.gradient_dtype": ["fp16", "''"],
    "train.optimizer": ["adam", "AdamW", "[sgd]"],
    "train.learning_rate": [*NUMBER, "x"],
    "train.weight_decay": ["-0.1", "nan", "1,0"],
    "train.momentum": ["1", "-1", "x"],
    "train.adam_beta1": ["1", "-0.1", "nan"],
    "train.adam_beta2": ["1", "1.0000", "x"],
    "train.adam_epsilon": ["-1e-8", "nan"],
    "train.max_grad_norm": ["-1", "inf", "x"],
    "train.lr_scheduler_type": ["step", "Cosine"],
    "train.warmup_ratio": ["1", "1.1", "-0.1", "nan"],
    "train.eval_steps": ["-1", "x", "1.5"],
    "train.eval_batches": ["0", "-1", "x"],
    "scheduling.policy": CHOICE,
    "scheduling.sharing": CHOICE,
    "scheduling.order": CHOICE,
    "scheduling.double_buffer": ["yes", "1", "True", "[true]"],
    "scheduling.device_timeout": ["0", "86401", "nan", "x"],
    "checkpoint.every_steps": ["-1", "1.5", "x"],
    "checkpoint.every_s": ["-1", "nan", "x"],
    "checkpoint.keep": ["-1", "1001", "x"],
    "sweep.method": ["bayes", "''"],
    "sweep.run_cap": ["-1", "x", "1.5"],
    "sweep.seed": ["-1", "x"],
    "sweep.metric": ["{name: accuracy}", "{goal: best}", "loss"],
    "sweep.parameters": ["[1]", "{train.learning_rate: 1}", ("{nothing: {values: [1]}}", "nothing"),
                         "{seed: {values: []}}", "{seed: {values: [1, 1]}}",
                         "{seed: {value: 1, values: [1]}}", "{devices: {values: [1, 2]}}",
                         "{seed: {values: [1, 2], probabilities: [0.5, 0.6]}}",
                         "{train.learning_rate: {min: 2, max: 1}}",
                         "{train.learning_rate: {min: 1}}",
                         "{train.learning_rate: {distribution: beta}}",
                         "{train.learning_rate: {min: 0, max: 18446744073709551615}}",
                         "{train: {values: [{}]}, train.data_parallel: {values: [1]}}",
                         ("{model.dropout: {values: [0.1, 2]}}", "model.dropout")],
    "sweep.early_terminate": ["{type: median}", "{type: pbt, min_iter: 5}",
                              "{type: median, min_iter: 5, eta: 2}",
                              "{type: asha, min_iter: 5, max_concurrent_trials: 0}",
                              "{type: hyperband, min_iter: 5, brackets: 9}",
                              "{type: hyperband, min_iter: 0}",
                              "{type: hyperband, min_iter: 5, eta: 1}",
                              "{type: hyperband, min_iter: 500}", "true"],
}
FIELDS = {"data_root": "data"}  # the path is wrong, wherever it begins
# Values of one device: the field, what stands in its braces, the exit code.
BAD_DEVICES = [
    ("devices", "[]"), ("devices", "{}"), ("devices", "64MiB"), ("devices", "[1]"),
    ("devices[0].memory", "[{}]"), ("devices[0].memory", "[{memory: 1}]"),
    ("devices[0].memory", "[{memory: 17TiB}]"), ("devices[0].memory", "[{memory: [1]}]"),
    ("devices[1].memory", "[{memory: 1MiB}, {memory: -1MiB}]"),
    ("devices[0].kind", "[{memory: 1MiB, kind: tpu}]"),
    ("devices[0].index", "[{memory: 1MiB, index: 1}]"),
    ("devices[0].imitate.link", "[{memory: 1MiB, imitate: {link: 1kB/s}}]"),
    ("devices[0].imitate.link", "[{memory: 1MiB, imitate: {link: fast}}]"),
    ("devices[0].imitate.slowdown", "[{memory: 1MiB, imitate: {slowdown: 0.5}}]"),
    ("devices[0].imitate.slowdown", "[{memory: 1MiB, imitate: {slowdown: 1001}}]"),
    ("devices[0].imitate.fault.kind", "[{memory: 1MiB, imitate: {fault: {kind: explode}}}]"),
    ("devices[0].imitate.fault.after_ops",
     "[{memory: 1MiB, imitate: {fault: {kind: fail, after_ops: -1}}}]"),
    ("devices[0].imitate.link", "[{memory: 1MiB, link: 1GB/s}]"),
    ("devices[0].colour", "[{memory: 1MiB, colour: red}]"),
]
OF_OTHERS = [
    (MLP, "model.hidden_act", "swish"), (MLP, "model.num_attention_heads", "2"),
    (MLP, "model.dropout", "1"), (MLP, "data.augment", "rotate"), (MLP, "data.path", "text.txt"),
    (MLP, "data.format", "bytes"), (MLP, "train.batch_size", ("100000", "data.eval_fraction")),
    (RESNET, "model.hidden_sizes", "8"), (RESNET, "model.hidden_sizes", "[]"),
    (RESNET, "model.hidden_sizes", "[4, 0]"), (RESNET, "model.depths", "[1]"),
    (RESNET, "model.depths", "[1, x]"), (RESNET, "model.batch_norm_eps", "-1"),
    (RESNET, "model.batch_norm_momentum", "2"), (RESNET, "model.freeze", "['*.running_mean']"),
    (RESNET, "model.hidden_size", "8"),
    ({"data.format": "tokens"}, "data.dtype", "uint8"),
    ({"data.format": "tokens"}, "model.vocab_size", "0"),
]
# Text of the file instead of a configuration, and the message.
NO_CONFIGURATION = [
    ("An empty file", "", "devices"), ("Only a comment", "# nothing\n", "devices"),
    ("A list", "[1, 2]\n", "mapping"), ("One word", "hello\n", "mapping"),
    ("A bracket without its end", "devices: [", "YAML"),
    ("A quote without its end", config_text({}) + "\nname: 'x\n", "YAML|name"),
    ("A tab for indentation", "train:\n\tdtype: bf16\n", "YAML"),
    ("A key twice", "name: a\nname: b\n", "second time"),
    ("Two documents", config_text({}) + "\n---\nname: other\n", "document"),
    ("An unknown anchor", "name: *nobody\n", "YAML|nobody|alias"),
    ("Bytes that are no UTF-8", b"name: \xff\xfe\xfa\n", "UTF-8|YAML|devices"),
    ("UTF-16", "name: a\n".encode("utf-16"), "UTF|YAML|devices"),
    ("A NUL between keys", b"name: a\x00\ndevices: []\n", "YAML|NUL|devices|name"),
    ("A key that is a list", "[a, b]: 1\n", "key|YAML"),
    ("An ELF program", b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 8, "."),
    ("Ten thousand brackets", "[" * 10000, "."),
    ("A merge of itself", "a: &a\n  b: *a\n", "."),
    ("A bomb of aliases", "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)), "."),
    ("Nine megabytes of one list", "a: [" + "1," * 4_500_000 + "1]\n", "large|long|limit|many"),
    ("Twenty megabytes of keys", "".join(f"k{n}: 1\n" for n in range(1_900_000)),
     "large|long|limit|many"),
    ("Ten megabytes of one word", "name: " + "a" * 10_000_000 + "\n", "."),
    ("Five million brackets", "[" * 5_000_000, "."),
]
OVERRIDES = [
    ("A word without '='", "train.data_parallel", "train.data_parallel"),
    ("An old key", "train.lanes=1", "train.lanes: was renamed to train.data_parallel"),
    ("A key with a slip", "train.data_paralel=1", "did you mean train.data_parallel"),
    ("An empty key", "=1", "override|key"),
    ("A key of dots", "...=1", r"\.\.\.|key|override"),
    ("A key below a value", "seed.x=1", "seed"),
    ("A key into a list that is not there", "devices[7].memory=1MiB", "devices"),
    ("A value that is no YAML", "train.data_parallel=[", "train.data_parallel"),
]


def refused(config, key, value):
    value, field = value if isinstance(value, tuple) else (value, FIELDS.get(key, key))
    field = pattern(field)
    words = f"train base.yaml {quoted(key, value)} --json"
    plan = f"plan base.yaml --no-pilot {quoted(key, value)}"
    name = f"{key}={value if len(value) < 60 else value[:20] + '...'} is refused"
    if config:
        name += f" for a {config['model']['family']}" if "model" in config else " for tokens"
    return Attempt(name, [furnish(config),
                          Run(words, code=2, err=field),
                          Run(plan, code=2, err=field) if key != "output_dir" else furnish(config),
                          is_absent("r")])


def quoted(key, value):
    return json.dumps(f"{key}={value}") if "'" in value else f"'{key}={value}'"


def pattern(field):
    return field.replace("[", "\\[").replace("]", "\\]").replace(".", "\\.")


def attempts():
    for key, values in BAD.items():
        yield from (refused({}, key, value) for value in values)
    for field, value in BAD_DEVICES:
        yield refused({}, "devices", (value, field))
    for config, key, value in OF_OTHERS:
        yield refused(config, key, value)
    for name, text, said in NO_CONFIGURATION:
        yield Attempt(f"{name} in place of a configuration is refused within seconds",
                      [furnish(), text_of("base.yaml", text),
                       Run("train base.yaml --json", code=2, err=said, within_s=15),
                       is_absent("r", "runs")], is_slow=len(text) > 5_000_000)
    for name, word, said in OVERRIDES:
        yield Attempt(f"{name} as an override is refused",
                      [furnish(), Run(f"train base.yaml {word}", code=2, err=said),
                       is_absent("r", "runs")])
    yield Attempt("An override of plain text is taken whole, whatever it would mean in YAML",
                  [furnish(), Run("train base.yaml output_dir=r 'name=a\n---\nb'"),
                   has_text("r/config.yaml", r'^name: "a\\n---\\nb"$')])
    yield Attempt("All that is wrong is said in one go",
                  [furnish({"train.data_parallel": "x", "train.momentum": 2, "seed": -1,
                            "model.droput": 1}),
                   Run("train base.yaml --json", code=2,
                       err=["train.data_parallel", "train.momentum", "seed", "model.dropout"])])


def random_attempt(chance, number):
    """A configuration with a few bytes changed: refused, does not fit, or trains."""
    data = bytearray(config_text({"train.max_steps": 2}).encode())
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(data))
        what = chance.randrange(3)
        if what == 0:
            data[place] = chance.randrange(256)
        elif what == 1:
            del data[place]
        else:
            data[place:place] = bytes([chance.choice(b"{}[]:,&*!|>'\"%@`#-? \n\t09aexn")])
    return Attempt(f"seed {number}: a configuration with random bytes is refused, or is one",
                   [furnish(), text_of("base.yaml", bytes(data)),
                    Run("train base.yaml --json", code=(0, 1, 2, 3))])
