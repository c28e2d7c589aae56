"""Every tolerance of the tests, with its reason.

"Noise" is how far the reference moves when it runs itself in float64 or with another number of
threads; it was measured for our files (`tests/golden/README.md`) and for the shared files. A limit
is some ten times the noise: far above rounding, far below any mistake, which shows at 1e-2 or more.
Relative limits are to the largest value of the recorded array (`Golden.compare`), absolute limits
are differences (`Golden.difference`).
"""

# Components against the reference, float32, relative.

# Image encoder, neck, position encodings: noise 1.7e-6 at 256 (1.1e-6 for shared files, 1024).
ENCODER = 2e-5
# The same at 1024, where sums are longer and the deeper models were not measured.
ENCODER_1024 = 1e-4
# Prompt encoder, memory encoder, one-dimensional encodings: noise 8e-7, short chains of sums.
PROMPTS = 2e-5
MEMORY_ENCODER = 2e-5
# Rotary and sine tables: the angles are float32 numbers up to E, so cos and sin inherit E x 6e-8.
TABLES = 2e-5
# Mask decoder: tokens, masks, pointers. Noise 9e-6: seven attentions over unnormalised tokens.
DECODER = 2e-4
# Memory attention, whole and a layer at a time. Noise 2.2e-5 at 256, 4.6e-5 at 1024.
MEMORY_ATTENTION = 3e-4

# Components against the reference, float32, absolute.

# IoU predictions and object scores: noise 5e-5; heads multiply by about 10 before they end.
IOU = 1e-3
OBJECT_SCORE = 1e-3
# A stability score is a ratio of pixel counts: two pixels of the smallest mask (56 x 56, half set).
STABILITY = 1.5e-3

# Exported graphs in ONNX Runtime against our own engine, absolute for results within 1, else
# relative to the largest: each sums float32 in its own order; noise 3e-5 in the image encoder.
EXPORTED = 3e-4
# As STABILITY: two pixels of a mask of 32 x 32, half set.
EXPORTED_STABILITY = 4e-3
# Random graphs of nine steps in f16 against float32, relative to the largest: half a unit is 4.9e-4
# and differences of near numbers lose digits; the largest seen was 0.008.
EXPORTED_FP16 = 0.03
# Masks of fp16 files against those of float32 files, IoU; random weights make logits near zero.
EXPORTED_FP16_IOU = 0.97

# Video with the memory kept in float32 (`_fp32mem`), 256.

# Low-resolution logits, absolute: noise 1e-4, fed back over ten frames and more.
VIDEO_LOGITS = 5e-3
VIDEO_SCORE = 1e-3
# Relative.
VIDEO_POINTER = 3e-4
VIDEO_MEMORY = 3e-4
# Share of pixels whose logit is so near 0 that its sign may turn: noise is a few pixels a mask.
VIDEO_PIXELS = 1e-4
# Our frames are small (19200 pixels), so the share above is less than two pixels: allow three.
VIDEO_PIXELS_SMALL = 1.6e-4

# The sister models, 512 and 1024, absolute: pointer and memory of the reference with one thread and
# with two differ by 2.8e-6 and 9.8e-5.
VIDEO_POINTER_SISTERS = 1e-3
VIDEO_MEMORY_SISTERS = 1e-2

# The same at 1024, absolute: two threads against one already gave 3.5e-3, 1.3e-4, 4e-5, 1.7e-3.
VIDEO_LOGITS_1024 = 5e-2
VIDEO_SCORE_1024 = 5e-3
VIDEO_POINTER_1024 = 2e-3
VIDEO_MEMORY_1024 = 3e-2
# How near 0 the recorded logit of a pixel must be whose sign may turn on a prompted frame. At the
# last prompt of S2 logits differ by 6e-4 to 8e-4, by the order of sums alone; 3 to 5 pixels turn.
VIDEO_FLIPPED_1024 = 1.5e-3

# Video with the memory rounded to bfloat16, as the reference does it. A difference of 1e-6 may
# round to the neighbouring bfloat16 number (4e-3 away) and feed back: two runs of the reference
# differ by 0.36 in a logit. So: root mean square over deviation, absolute score, overlap of masks.
VIDEO_BF16_LOGITS_RMS = 0.1
VIDEO_BF16_SCORE = 0.3
VIDEO_BF16_MASK_IOU = 0.98

# The image predictor from picture to mask: logits absolute, noise 1.4e-4 at 1024.
IMAGE_LOGITS = 5e-3
IMAGE_PIXELS = 1e-4
# Share of pixels that may differ where images went through the encoder together: sums are taken in
# another order, and a logit next to 0 may change sign (measured: none in six masks of 19,200).
BATCHED_PIXELS = 1e-3

# One op of an engine against its numpy reference: (absolute, relative), an element is right when
# it is within absolute + relative x |expected|. Derived as ONNX Runtime does: the rounding error
# of a million random values, times 10 absolute and times 2 relative.

# Sums of some hundred float32 products in another order.
OP_FP32 = (1e-5, 1e-4)
# 11 bits of fraction: half a unit is 4.9e-4, and a few roundings.
OP_FP16 = (2.5e-3, 1e-3)
# 8 bits of fraction: half a unit is 3.9e-3, and a few roundings.
OP_BF16 = (2e-2, 1e-2)
# The precision bf16 against float32, built-in model: operands and results of products have 8 bits
# of fraction. Measured: embedding 1.7 % off, IoU of masks 0.997 on average and 0.978 at worst.
EMBEDDING_BF16 = 0.02
MASK_IOU_BF16, WORST_MASK_IOU_BF16 = 0.98, 0.95

# Our erf against `math.erf`, absolute: what `ops/gelu.py` promises.
ERF = 1e-12
# A pass that rearranges sums, in float64, relative to the largest value: a hundred roundings.
ALGEBRAIC_PASS = 1e-6
# A node marked exact, in bf16 mode against fp32 mode, relative to the largest value.
EXACT_NODE = 1e-6

# Native attention of small random arrays against the reference in float64: float32 sums of up to a
# hundred products, and scores up to 100, whose exponential has 100 times their relative error.
NATIVE_ATTENTION = 2e-4
# The same with operands rounded to 8 bits and more (scores to 11), relative to the largest value.
NATIVE_ATTENTION_BF16 = 2e-2
# Memory attention over pooled frames whose squares of 2 x 2 cells are alike, against the exact one,
# 2-norm: positions within a square are lost. 0.12 with random weights, whose attention is sharp.
POOLED_MEMORY = 0.15
# IoU of masks with weights in 8 bits. On a photograph of a cat and the built-in model, clicks gave
# 0.975 to 0.999: points at the edge of fur turn over.
INT8_MASKS = 0.95
# Channels of a pixel on the page's canvas, of 256: JPEG, resampling and antialiasing.
COLOUR_STEPS = 14
# Drop-in code. Methods of tensors, and the reference's functions, beside the originals: sums of a
# few float32 numbers in another order.
COMPAT_METHODS = 1e-6
# Two engines that track three frames on their own memories, in bfloat16: 2.1e-3 was seen.
COMPAT_TRACKED_LOGITS = 0.02
# The same over five frames, for each of the small models with random weights, relative to the
# norm: what is rounded another way in bfloat16 grows by five to ten times per frame, 1.4e-2 was
# seen; an approximation changes 0.16 or more.
TRACKED_RANDOM_RMS = 0.03
# A session of transformers, memories in bfloat16 on both sides: at most 3.1e-3 was seen, and 8e-2
# where one of two objects was remembered in another way.
TRANSFORMERS_LOGITS_RMS = 0.01
TRANSFORMERS_SCORE = 0.03
# A kernel of the torch engine against its numpy reference, in Triton's interpreter: the norm of the
# difference over that of the result. Sums in another order; our erf is within 3e-7.
KERNEL_FP32 = 3e-6
# The same with inputs in float16, which are rounded alike for both: only sums differ, and what the
# kernel rounds in between (normalised rows, probabilities) and at the end: half a unit is 4.9e-4.
KERNEL_FP16 = 1e-3

# A photograph resized on the device against the host, normalised: sums of a few products in
# another order, and one division by 255 before instead of after; values are within 3.
DEVICE_RESIZE = 5e-6
# A graph of fused ops against the graph it was made of, both in float32, relative to the largest
# value: products of weights are multiplied out, and 20 layers carry the rounding on.
FUSED_GRAPH = 2e-3

# Graphs in bf16 on a GPU against float32 there, random weights: the norm of the difference over
# that of the output, for `benchmarks/cuda.py`. 8 bits of fraction are 2e-3 per product; tens of
# layers carry it on. Autocast of torch has 1.5e-2 on embeddings. Attention over random memories is
# sharp, and errors of its scores are errors of a softmax. The decoder is computed in TF32.
CUDA_BF16 = {
    "image_encoder": 1.5e-2,
    "attend_bank": 7e-2,
    "decode_tracked": 3e-2,
    "memory_encoder": 1.5e-2,
}
# Where a family needs another bound. EdgeTAM's trunk has no norm that would pull values together
# again; torch on a CPU in bf16 is off by as much (1.9e-2).
CUDA_BF16_OF = {("edgetam", "image_encoder"): 2.5e-2}

# IoU of masks of the page without a server with those of the package: what is promised. Weights
# that passes have multiplied are rounded to 16 bits, and browsers decode JPEG in their own way.
WEB_MASKS = 0.98
# A decoder with its weights rounded to 16 bits, relative to the largest value: half a unit is
# 4.9e-4, and 20 layers of random weights carry it on.
HALF_WEIGHTS = 2e-2

# Mask logits of a tracked video whose objects run in smaller batches, or whose graphs are those for
# a batch of one, against one batch: other kernels sum in another order, and memory stored in bf16
# rounds the difference up to 2**-9 of a value, frame after frame.
SMALLER_BATCHES = 2e-2

# Parts of SAM 2 before and after a pass of the torch engine, by the numpy references in float32,
# relative to the largest value: products of weights are multiplied out, a few layers deep.
TORCH_PASS = 1e-4

# Logits of the decoder compiled as one graph and as another with more outputs, on random weights:
# layers are fused differently, and three frames of tracking carry the rounding on; logits reach 20.
SAME_DECODER = 2e-3
