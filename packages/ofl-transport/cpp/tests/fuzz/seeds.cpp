// The first inputs of the fuzzer, one for each thing that the wire can carry: valid frames, written with the library's own
// header.
//
//     ofl_fuzz_seeds FOLDER

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "wire.hpp"

namespace {

using ofl::wire::FrameType;

// An input: how it is cut, then frames.
class Input {
 public:
  explicit Input(std::uint64_t cut) { add(&cut, sizeof cut); }

  Input& frame(FrameType type, std::uint64_t sequence, const void* body, std::size_t bytes) {
    const ofl::wire::FrameHeader header = ofl::wire::make_header(type, sequence, bytes);
    add(&header, sizeof header);
    add(body, bytes);
    return *this;
  }
  Input& frame(FrameType type, std::uint64_t sequence = 0, const std::string& body = "") {
    return frame(type, sequence, body.data(), body.size());
  }
  template <typename Body>
  Input& body(FrameType type, const Body& fields) {
    return frame(type, 0, &fields, sizeof fields);
  }
  const std::vector<unsigned char>& bytes() const { return bytes_; }

 private:
  void add(const void* from, std::size_t bytes) {
    const auto* first = static_cast<const unsigned char*>(from);
    if (bytes > 0) bytes_.insert(bytes_.end(), first, first + bytes);
  }
  std::vector<unsigned char> bytes_;
};

ofl::wire::ConnectBody offer() {
  ofl::wire::ConnectBody body{};
  body.boot_nonce = 0x0123456789ABCDEF;
  body.frame_bytes_max = 65536;
  body.version_min = 1;
  body.version_max = 2;
  body.heartbeat_ms = 100;
  body.loss_ms = 2000;
  std::memcpy(body.service, "echo", 4);
  return body;
}

ofl::wire::AcceptBody answer() {
  ofl::wire::AcceptBody body{};
  body.boot_nonce = 0xFEDCBA9876543210;
  body.frame_bytes_max = 65536;
  body.version = 2;
  body.calls_max = 256;
  return body;
}

std::vector<Input> inputs() {
  std::vector<Input> all;
  all.push_back(Input(1)
                    .body(FrameType::connect, offer())
                    .frame(FrameType::request, 1, "hidden states")
                    .frame(FrameType::cancel, 1)
                    .frame(FrameType::heartbeat)
                    .frame(FrameType::close, 0, "the engine stops"));
  all.push_back(Input(2)
                    .body(FrameType::accept, answer())
                    .frame(FrameType::reply, 1, "drafts")
                    .frame(FrameType::reply, 257, "")
                    .frame(FrameType::heartbeat)
                    .frame(FrameType::close));
  all.push_back(Input(3).frame(FrameType::refuse, 0, std::string("\2\0\0\0\0\0\0\0no such service", 23)));
  all.push_back(Input(4).frame(FrameType::request, 7, std::string(40'000, 'x')).frame(FrameType::request, 8, "y"));
  all.push_back(Input(5).frame(FrameType::reply, 9, std::string(16'384 - 24, 'x')).frame(FrameType::heartbeat));
  all.push_back(Input(6).frame(FrameType::request, 10, std::string(65'536, 'x')).frame(FrameType::cancel, 10));
  all.push_back(Input(7).frame(FrameType::request, 11, std::string(65'537, 'x')));
  Input many(8);
  for (std::uint64_t sequence = 1; sequence <= 800; ++sequence) many.frame(FrameType::request, sequence, "");
  all.push_back(many);
  return all;
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", words[0]);
    return 2;
  }
  int number = 0;
  for (const Input& input : inputs()) {
    const std::string path = std::string(words[1]) + "/seed-" + std::to_string(++number);
    std::FILE* const file = std::fopen(path.c_str(), "wb");
    const bool written = file != nullptr && std::fwrite(input.bytes().data(), 1, input.bytes().size(), file) ==
                                                input.bytes().size();
    if (file == nullptr || std::fclose(file) != 0 || !written) {
      std::fprintf(stderr, "%s cannot be written\n", path.c_str());
      return 1;
    }
  }
  return 0;
}
