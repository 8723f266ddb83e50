// Fuzz target: arbitrary bytes, in arbitrary pieces, to the reader of a socket's frames.  See stream.hpp for the rule.

#include <cerrno>

#include <sys/socket.h>

#include "stream.hpp"
#include "socket_channel.hpp"

namespace {

// The channel under test at one end of a socket pair, the bytes at the other.
class SocketReader {
 public:
  SocketReader() : SocketReader(make_pair()) {}

  std::size_t give(fuzz::Bytes piece) {
    const ssize_t sent = ::send(peer_.get(), piece.data(), piece.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    HOLDS(sent >= 0 || errno == EAGAIN || errno == EWOULDBLOCK, "the socket takes bytes or is full");
    return sent < 0 ? 0 : static_cast<std::size_t>(sent);
  }
  ofl::Progress receive(ofl::Inbox& inbox, std::size_t budget) { return channel_.receive(inbox, budget); }
  void retract(const std::byte* memory) { channel_.retract(memory); }
  const char* fault() const { return channel_.fault(); }
  bool mid_frame() const { return channel_.mid_frame(); }
  std::uint64_t bytes_received() const { return channel_.bytes_received(); }
  void end() { peer_.reset(); }

 private:
  struct Pair {
    int ours;
    int theirs;
  };
  static Pair make_pair() {
    int ends[2];
    HOLDS(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0, "there is a socket pair");
    return {ends[0], ends[1]};
  }
  explicit SocketReader(Pair pair) : channel_(ofl::UniqueFd(pair.ours)), peer_(pair.theirs) {}

  ofl::SocketChannel channel_;
  ofl::UniqueFd peer_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::uint64_t seed = 0;
  fuzz::Bytes stream;
  if (!fuzz::split(data, size, seed, stream)) return 0;
  fuzz::Choices choices(seed);
  SocketReader reader;
  fuzz::read_stream(reader, stream, choices);
  return 0;
}
