"""Models of PyTorch whose layers are divided into pieces."""

import unittest

import spillway as sp
from export_test import NODE, ExportCase, Transformer, made, multilayer, texts, vectors


class PiecesTest(ExportCase):
    def test_keep_bits_and_whole_tensors(self):
        tokens = texts()
        for dtype in ("float32", "bfloat16"):
            whole = self.export(made(Transformer, 0.1), tokens[:NODE, :-1], targets="next_token",
                                dtype=dtype)
            expected, state, _ = self.train(whole, sp.data(tokens))
            model = whole.divided(attention=2, vocabulary=4)
            divided = self.assert_exact(model, sp.data(tokens))
            self.assertNotEqual(divided.weights_xxh3, expected.weights_xxh3)
            self.assertAlmostEqual(divided.losses[0], expected.losses[0], delta=0.1)
            _, weights, _ = self.train(model, sp.data(tokens))
            self.assertEqual({name: value.shape for name, value in weights.items()},
                             {name: value.shape for name, value in state.items()})
        x, _ = vectors()
        with self.assertRaisesRegex(sp.ConfigError, "model.pieces.attention: is 3, but no atten.*"
                                    " can be divided: it has no attention; write 1"):
            self.export(multilayer(), x[:NODE]).divided(attention=3)
        with self.assertRaisesRegex(sp.ConfigError, "model.pieces.mlp"):
            whole.divided(mlp=0)


if __name__ == "__main__":
    unittest.main()
