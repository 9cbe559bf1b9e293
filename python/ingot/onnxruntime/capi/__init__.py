"""Where programs that use onnxruntime find its exceptions."""
