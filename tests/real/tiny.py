"""Make a tiny model of random weights: `tiny.py KIND PATH`, KIND being llm, voice or recogniser.

What it says means nothing; the servers load it and answer as they do with a real one.  Run by the
interpreter beside the servers, which has the packages that write each format.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

WORDS = ("the", "ferry", "leaves", "at", "dawn", "and", "old", "town", "wakes", "up")


def main() -> None:
    makers = {"llm": make_llm, "voice": make_voice, "recogniser": make_recogniser}
    makers[sys.argv[1]](Path(sys.argv[2]))


def make_llm(path: Path) -> None:
    """A Llama of one layer as GGUF, for llama-server.

    The first component of every embedding is large, and the output prefers `WORDS` by it: it never
    says a byte that is no text, nor ends by itself.
    """
    import gguf
    import numpy as np

    tokens = [b"<unk>", b"<s>", b"</s>", *(b"<0x%02X>" % byte for byte in range(256))]
    tokens += [f"\N{LOWER ONE EIGHTH BLOCK}{word}".encode() for word in WORDS]
    kinds = gguf.TokenType
    types = [kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL, *[kinds.BYTE] * 256]
    types += [kinds.NORMAL] * len(WORDS)
    width, heads, random = 32, 2, np.random.default_rng(0)

    def weights(*shape: int) -> Any:
        return random.standard_normal(shape, dtype=np.float32) * 0.1

    embedding, output = weights(len(tokens), width), weights(len(tokens), width)
    embedding[:, 0] = 4
    output[:, 0], output[-len(WORDS) :, 0] = -10, 10
    norm = np.ones(width, dtype=np.float32)
    tensors = {"token_embd": embedding, "output": output, "output_norm": norm}
    tensors |= {"blk.0.attn_norm": norm, "blk.0.ffn_norm": norm}
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        tensors[f"blk.0.{name}"] = weights(width, width)

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(131072)
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(width)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_rope_dimension_count(width // heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types(types)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{% for message in messages %}{{ message.content }}{% endfor %}")
    for name, tensor in tensors.items():
        writer.add_tensor(f"{name}.weight", tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make_voice(path: Path) -> None:
    """A voice as ONNX with its configuration beside it, for Piper: each letter is a hum."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    inputs = [
        helper.make_tensor_value_info("input", TensorProto.INT64, ["batch", "letters"]),
        helper.make_tensor_value_info("input_lengths", TensorProto.INT64, ["batch"]),
        helper.make_tensor_value_info("scales", TensorProto.FLOAT, [3]),
    ]
    audio = helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", 1, 1, "time"])
    wave = np.sin(np.arange(256, dtype=np.float32) / 4).reshape(1, 256) / 50
    constants = {"wave": wave, "shape": np.array([1, 1, 1, -1]), "axis": np.array([2])}
    nodes = [
        helper.make_node("Cast", ["input"], ["letters"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["letters", "axis"], ["column"]),
        helper.make_node("MatMul", ["column", "wave"], ["hum"]),
        helper.make_node("Reshape", ["hum", "shape"], ["output"]),
    ]
    values = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "voice", inputs, [audio], values)
    opsets = [helper.make_opsetid("", 15)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    symbols = "_^$ abcdefghijklmnopqrstuvwxyz.,!?"
    configuration = {
        "audio": {"sample_rate": 16000},
        "espeak": {"voice": "en"},
        "phoneme_type": "text",
        "num_symbols": len(symbols),
        "num_speakers": 1,
        "phoneme_id_map": {symbol: [number] for number, symbol in enumerate(symbols)},
    }
    path.with_name(f"{path.name}.json").write_text(json.dumps(configuration), encoding="utf-8")


def make_recogniser(path: Path) -> None:
    """A Whisper of one layer each way as CTranslate2 writes it, for faster-whisper."""
    import tokenizers
    from ctranslate2.specs.whisper_spec import WhisperSpec

    bytes_as_letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    names = "endoftext startoftranscript en translate transcribe startoflm startofprev nospeech"
    special = [f"<|{name}|>" for name in (*names.split(), "notimestamps")]
    special += [f"<|{step * 0.02:.2f}|>" for step in range(1501)]
    spec = WhisperSpec(1, 2, 1, 2)
    _fill_whisper(spec, vocabulary=len(bytes_as_letters) + len(special))
    spec.register_vocabulary(bytes_as_letters + special)
    spec.validate()
    path.mkdir()
    spec.save(str(path))
    letters = {letter: number for number, letter in enumerate(bytes_as_letters)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=letters, merges=[]))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens([tokenizers.AddedToken(name, special=True) for name in special])
    tokenizer.save(str(path / "tokenizer.json"))


def _fill_whisper(spec: Any, vocabulary: int) -> None:
    import numpy as np

    width, mels, random = 16, 80, np.random.default_rng(0)

    def weights(*shape: int) -> Any:
        return (random.standard_normal(shape) * 0.1).astype(np.float32)

    def fill(layer: Any, *shape: int) -> None:
        layer.weight, layer.bias = weights(*shape), np.zeros(shape[0], np.float32)

    def level(layer: Any) -> None:
        layer.gamma, layer.beta = np.ones(width, np.float32), np.zeros(width, np.float32)

    def attend(attention: Any, *widths: int) -> None:
        level(attention.layer_norm)
        for linear, out in zip(attention.linear, widths, strict=True):
            fill(linear, out * width, width)

    encoder, decoder = spec.encoder, spec.decoder
    fill(encoder.conv1, width, mels, 3)
    fill(encoder.conv2, width, width, 3)
    encoder.position_encodings.encodings = weights(1500, width)
    decoder.embeddings.weight = decoder.projection.weight = weights(vocabulary, width)
    decoder.position_encodings.encodings = weights(448, width)
    for block in (*encoder.layer, *decoder.layer):
        attend(block.self_attention, 3, 1)
        level(block.ffn.layer_norm)
        fill(block.ffn.linear_0, width, width)
        fill(block.ffn.linear_1, width, width)
    attend(decoder.layer[0].attention, 1, 2, 1)
    level(encoder.layer_norm)
    level(decoder.layer_norm)


if __name__ == "__main__":
    main()
