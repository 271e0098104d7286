"""A GGUF file as a language model: llama.cpp in a process of its own, asked over loopback."""
