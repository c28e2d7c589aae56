// A click on a picture from exported ONNX files, in C++ with ONNX Runtime's C++ API.
//
//     c++ -std=c++17 click.cpp -I ORT/include -L ORT/lib -lonnxruntime -o click
//     click FOLDER picture.ppm X Y mask.pgm
//
// ORT is an unpacked release of ONNX Runtime, or a package such as libonnxruntime-dev. The picture
// is a binary PPM of the model's input size (`image_size` in manifest.json), the mask a PGM of a
// quarter of it.

#include <onnxruntime_cxx_api.h>

#include <array>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

constexpr std::array<float, 3> MEAN{0.485f, 0.456f, 0.406f}, STD{0.229f, 0.224f, 0.225f};

// The picture, normalised, as [3, size, size].
std::vector<float> read_picture(const std::string &path, int64_t &size) {
  std::ifstream file(path, std::ios::binary);
  std::string kind;
  int64_t width = 0, height = 0, largest = 0;
  file >> kind >> width >> height >> largest;
  file.get();
  if (!file || kind != "P6" || largest != 255 || width != height || width < 64 || width > 4096)
    throw std::invalid_argument("`" + path + "` is not a square binary PPM");
  const size_t count = static_cast<size_t>(width * width);
  std::vector<char> bytes(3 * count);
  if (!file.read(bytes.data(), static_cast<std::streamsize>(bytes.size())))
    throw std::invalid_argument("`" + path + "` is cut short");
  std::vector<float> pixels(3 * count);
  for (size_t i = 0; i < count; i++)
    for (size_t c = 0; c < 3; c++) {
      const float byte = static_cast<uint8_t>(bytes[3 * i + c]);
      pixels[c * count + i] = (byte / 255.0f - MEAN[c]) / STD[c];
    }
  size = width;
  return pixels;
}

template <typename T> Ort::Value tensor(std::vector<T> &data, const std::vector<int64_t> &shape) {
  static const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  return Ort::Value::CreateTensor<T>(memory, data.data(), data.size(), shape.data(), shape.size());
}

std::vector<Ort::Value> run(Ort::Session &session, const std::vector<std::string> &names,
                            const std::vector<Ort::Value> &inputs,
                            const std::vector<std::string> &wanted) {
  std::vector<const char *> given, asked;
  for (const auto &name : names) given.push_back(name.c_str());
  for (const auto &name : wanted) asked.push_back(name.c_str());
  return session.Run(Ort::RunOptions{}, given.data(), inputs.data(), inputs.size(), asked.data(),
                     asked.size());
}

int click(const std::string &folder, const std::string &picture, float x, float y,
          const std::string &target) {
  int64_t size = 0;
  auto pixels = read_picture(picture, size);
  Ort::Env environment(ORT_LOGGING_LEVEL_ERROR, "click");
  const auto open = [&](const std::string &name) {
    const std::string path = folder + "/" + name + ".onnx";
    const std::basic_string<ORTCHAR_T> native(path.begin(), path.end());
    return Ort::Session(environment, native.c_str(), Ort::SessionOptions{});
  };
  auto encoder = open("image_encoder"), decoder = open("decode_points");

  std::vector<std::string> names;  // of the feature maps, which depend on the model
  Ort::AllocatorWithDefaultOptions allocator;
  for (size_t i = 0; i < encoder.GetOutputCount(); i++)
    names.emplace_back(encoder.GetOutputNameAllocated(i, allocator).get());
  std::vector<Ort::Value> image;
  image.push_back(tensor(pixels, {1, 3, size, size}));
  auto inputs = run(encoder, {"image"}, image, names);

  std::vector<float> point{x, y};
  std::vector<int64_t> label{1};
  names.insert(names.end(), {"points", "labels"});
  inputs.push_back(tensor(point, {1, 1, 2}));
  inputs.push_back(tensor(label, {1, 1}));
  const auto found = run(decoder, names, inputs, {"masks", "ious"});
  const float *logits = found[0].GetTensorData<float>(), *ious = found[1].GetTensorData<float>();

  int64_t best = 1;  // masks 1 to 3 are for a single click
  for (int64_t i = 2; i < 4; i++)
    if (ious[i] > ious[best]) best = i;
  const int64_t side = size / 4;
  std::ofstream file(target, std::ios::binary);
  file << "P5 " << side << " " << side << " 255\n";
  for (int64_t i = 0; i < side * side; i++)
    file.put(logits[best * side * side + i] > 0 ? '\xff' : '\0');
  if (!file.flush()) throw std::invalid_argument("`" + target + "` cannot be written");
  return 0;
}

int main(int count, char **arguments) {
  if (count != 6) {
    std::cerr << "usage: click FOLDER picture.ppm X Y mask.pgm\n";
    return 2;
  }
  try {
    return click(arguments[1], arguments[2], std::stof(arguments[3]), std::stof(arguments[4]),
                 arguments[5]);
  } catch (const std::exception &error) {
    std::cerr << "error: " << error.what() << "\n";
    return 2;
  }
}
