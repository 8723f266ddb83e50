// The first inputs of the fuzzer, one for each thing that the wire can carry: valid frames, written with the library's own
// header.
//
//     ofl_fuzz_seeds FOLDER

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "seed_files.hpp"
#include "wire.hpp"

namespace {

using ofl::wire::FrameType;

// An input: how it is cut, then frames.
class Input : public fuzz::SeedInput {
 public:
  explicit Input(std::uint64_t cut) : SeedInput(cut) {}

  Input& frame(FrameType type, std::uint64_t sequence, const void* body, std::size_t bytes, std::uint16_t flags = 0) {
    const ofl::wire::FrameHeader header = ofl::wire::make_header(type, sequence, bytes, flags);
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
  // A request whose reply goes to memory of `room` bytes.
  Input& placed(std::uint64_t sequence, std::uint32_t room, const std::string& body) {
    const ofl::wire::PlacementRecord record{0, 0, room};
    std::string whole(reinterpret_cast<const char*>(&record), sizeof record);
    whole += body;
    return frame(FrameType::request, sequence, whole.data(), whole.size(), ofl::wire::kPlaced);
  }
};

ofl::wire::ConnectBody offer(ofl::wire::Transport transport, ofl::wire::Authentication authentication) {
  ofl::wire::ConnectBody body{};
  body.transport = static_cast<std::uint8_t>(transport);
  body.authentication = static_cast<std::uint8_t>(authentication);
  std::memset(body.nonce, 0x11, sizeof body.nonce);
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
  body.transport = static_cast<std::uint8_t>(ofl::wire::Transport::tcp);
  return body;
}

// What a client says once it is connected.
void talk(Input& input) {
  input.frame(FrameType::request, 1, "hidden states")
      .frame(FrameType::cancel, 1)
      .placed(2, 4096, "ids")
      .placed(3, 0, "")
      .frame(FrameType::cancel, 3)
      .frame(FrameType::heartbeat)
      .frame(FrameType::request, 258, std::string(5000, 'z'))
      .frame(FrameType::close, 0, "the engine stops");
}

// Every wire, with and without a proof.
void add_clients(std::vector<Input>& all) {
  using ofl::wire::Authentication;
  using ofl::wire::Transport;
  for (std::uint64_t cut = 100; cut < 132; ++cut) {
    const auto transport = static_cast<Transport>(1 + (cut % 8 == 0 ? cut / 8 % 3 : 0));
    const auto authentication = static_cast<Authentication>(cut % 2);
    Input input(cut);
    input.body(FrameType::connect, offer(transport, authentication));
    if (cut % 4 == 1) input.body(FrameType::proof, ofl::wire::ProofBody{});
    if (transport == Transport::rdma) input.body(FrameType::link, ofl::wire::RdmaLinkBody{{}, 17, 0, 64, 65'536, 1024, 0});
    if (transport == Transport::shm) input.body(FrameType::link, ofl::wire::ShmLinkBody{1U << 20, 0});
    talk(input);
    all.push_back(input);
  }
}

std::vector<Input> inputs() {
  std::vector<Input> all;
  add_clients(all);
  all.push_back(Input(2)
                    .body(FrameType::challenge, ofl::wire::ChallengeBody{})
                    .body(FrameType::accept, answer())
                    .frame(FrameType::reply, 1, "drafts")
                    .frame(FrameType::reply, 257, "")
                    .frame(FrameType::cancelled, 3)
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

int main(int count, char** words) { return fuzz::write_seeds(count, words, inputs()); }
