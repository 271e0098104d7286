"""A GGUF file as a language model: llama.cpp in a separate process, reached over loopback."""
