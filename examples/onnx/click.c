/* A click on a picture from exported ONNX files, in C, with OpenVINO's C API, which reads ONNX.

   The headers and libraries are in OpenVINO's Python wheel. The picture is a binary PPM of the
   model's input size (`image_size` in manifest.json), the mask a PGM of a quarter of it:

       click FOLDER picture.ppm X Y mask.pgm
*/

#include <openvino/c/openvino.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static const float MEAN[3] = {0.485f, 0.456f, 0.406f}, STD[3] = {0.229f, 0.224f, 0.225f};

static void check(ov_status_e status, const char *what) {
  if (status != OK) {
    fprintf(stderr, "error: %s: %s\n", what, ov_get_error_info(status));
    exit(1);
  }
}

static void *allocate(size_t bytes) {
  void *memory = malloc(bytes);
  if (memory == NULL) {
    fprintf(stderr, "error: there is not enough memory\n");
    exit(1);
  }
  return memory;
}

/* A request that runs FOLDER/NAME.onnx. */
static ov_infer_request_t *load(ov_core_t *core, const char *folder, const char *name) {
  char path[4096];
  ov_compiled_model_t *model = NULL;
  ov_infer_request_t *request = NULL;
  snprintf(path, sizeof path, "%s/%s.onnx", folder, name);
  /* Some processors would compute in bf16 otherwise, and masks of the decoder differ in it. */
  check(ov_core_compile_model_from_file(core, path, "CPU", 2, &model,
                                        ov_property_key_hint_inference_precision, "f32"),
        path);
  check(ov_compiled_model_create_infer_request(model, &request), path);
  ov_compiled_model_free(model);
  return request;
}

/* Give a request an array that the caller keeps alive. */
static void give(ov_infer_request_t *request, const char *name, ov_element_type_e type, int64_t rank,
                 const int64_t *lengths, void *data) {
  ov_shape_t shape;
  ov_tensor_t *tensor = NULL;
  check(ov_shape_create(rank, lengths, &shape), name);
  check(ov_tensor_create_from_host_ptr(type, shape, data, &tensor), name);
  check(ov_infer_request_set_tensor(request, name, tensor), name);
  ov_tensor_free(tensor);
  ov_shape_free(&shape);
}

/* The picture, normalised, as [3, size, size]. */
static float *read_picture(const char *path, int *size) {
  FILE *file = fopen(path, "rb");
  int width = 0, height = 0;
  if (file == NULL || fscanf(file, "P6 %d %d 255", &width, &height) != 2 || width != height ||
      width < 64 || width > 4096 || fgetc(file) == EOF) {
    fprintf(stderr, "error: `%s` is not a square binary PPM\n", path);
    exit(2);
  }
  size_t count = (size_t)width * width;
  uint8_t *bytes = allocate(3 * count);
  float *pixels = allocate(3 * count * sizeof(float));
  if (fread(bytes, 3, count, file) != count) {
    fprintf(stderr, "error: `%s` is cut short\n", path);
    exit(2);
  }
  fclose(file);
  for (size_t i = 0; i < count; i++)
    for (int c = 0; c < 3; c++)
      pixels[c * count + i] = (bytes[3 * i + c] / 255.0f - MEAN[c]) / STD[c];
  free(bytes);
  *size = width;
  return pixels;
}

static float *output(ov_infer_request_t *request, const char *name, ov_tensor_t **tensor) {
  void *data = NULL;
  check(ov_infer_request_get_tensor(request, name, tensor), name);
  check(ov_tensor_data(*tensor, &data), name);
  return data;
}

int main(int count, char **arguments) {
  static const char *FEATURES[3] = {"embedding", "fine_0", "fine_1"};
  if (count != 6) {
    fprintf(stderr, "usage: click FOLDER picture.ppm X Y mask.pgm\n");
    return 2;
  }
  int size = 0;
  float *pixels = read_picture(arguments[2], &size);
  float point[2] = {strtof(arguments[3], NULL), strtof(arguments[4], NULL)};
  int64_t label = 1;
  ov_core_t *core = NULL;
  check(ov_core_create(&core), "OpenVINO");
  ov_infer_request_t *encoder = load(core, arguments[1], "image_encoder");
  ov_infer_request_t *decoder = load(core, arguments[1], "decode_points");
  give(encoder, "image", F32, 4, (int64_t[]){1, 3, size, size}, pixels);
  check(ov_infer_request_infer(encoder), "image_encoder");
  for (int i = 0; i < 3; i++) {
    ov_tensor_t *feature = NULL;
    check(ov_infer_request_get_tensor(encoder, FEATURES[i], &feature), FEATURES[i]);
    check(ov_infer_request_set_tensor(decoder, FEATURES[i], feature), FEATURES[i]);
    ov_tensor_free(feature);
  }
  give(decoder, "points", F32, 3, (int64_t[]){1, 1, 2}, point);
  give(decoder, "labels", I64, 2, (int64_t[]){1, 1}, &label);
  check(ov_infer_request_infer(decoder), "decode_points");

  ov_tensor_t *ious = NULL, *masks = NULL;
  float *score = output(decoder, "ious", &ious), *logits = output(decoder, "masks", &masks);
  int best = 1; /* masks 1 to 3 are for a single click */
  for (int i = 2; i < 4; i++)
    if (score[i] > score[best]) best = i;
  size_t side = (size_t)size / 4, first = best * side * side;
  FILE *file = fopen(arguments[5], "wb");
  if (file == NULL) {
    fprintf(stderr, "error: `%s` cannot be written\n", arguments[5]);
    return 2;
  }
  fprintf(file, "P5 %zu %zu 255\n", side, side);
  for (size_t i = 0; i < side * side; i++) fputc(logits[first + i] > 0 ? 255 : 0, file);
  fclose(file);
  ov_tensor_free(ious);
  ov_tensor_free(masks);
  ov_infer_request_free(encoder);
  ov_infer_request_free(decoder);
  ov_core_free(core);
  free(pixels);
  return 0;
}
