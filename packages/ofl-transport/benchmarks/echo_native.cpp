// Echo round trips through the C ABI against a raw blocking-socket ping-pong, without an interpreter on either side.
//
//   cmake -S . -B build/bench -DOFL_BENCHMARKS=ON && cmake --build build/bench && build/bench/ofl_echo_benchmark
//
// Each server is its own process on loopback; the two kinds alternate, and the best p50 of each gives the ratio.

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.hpp"
#include "ofl.h"

namespace {

using ofl::kSecond;
using ofl::now_ns;

constexpr int kRounds = 5;
constexpr std::size_t kTrips = 10'000;
constexpr std::array<std::size_t, 2> kSizes = {64, 4096};
constexpr std::uint32_t kFrameBytesMax = 1U << 20;

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::exit(1);
}

// Runs a server in a child that ends with us; returns the port that it reports.
template <typename Function>
std::uint16_t start_process(Function serve) {
  int ends[2];
  if (::pipe(ends) != 0) die("pipe");
  if (::fork() == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    serve(ends[1]);
    ::_exit(0);
  }
  std::uint16_t port = 0;
  if (::read(ends[0], &port, sizeof port) != sizeof port) die("read");
  return port;
}

void report_port(int pipe, std::uint16_t port) {
  if (::write(pipe, &port, sizeof port) != sizeof port) die("write");
}

void serve_ofl(int pipe) {
  ofl_server_options options{};
  options.service = "echo";
  options.version_min = options.version_max = 1;
  options.frame_bytes_max = kFrameBytesMax;
  options.connections_max = options.pending_max = options.calls_max = 16;
  options.handshake_ns = options.frame_ns = kSecond;
  options.queue_bytes_max = 4 * kFrameBytesMax;
  ofl_server* server = nullptr;
  std::uint16_t port = 0;
  if (ofl_server_create(&options, &server, nullptr, 0) != OFL_OK) die("create");
  if (ofl_server_listen(server, "127.0.0.1", 0, &port, nullptr, 0) != OFL_OK) die("listen");
  report_port(pipe, port);
  ofl_event event;
  for (;;) {
    if (ofl_server_next(server, now_ns() + kSecond, &event) != OFL_OK || event.kind != OFL_EVENT_REQUEST) continue;
    const ofl_part part{event.body, event.body_bytes};
    ofl_server_reply(server, event.connection, event.sequence, &part, 1);
  }
}

void set_no_delay(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

void serve_raw(int pipe) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = loopback(0);
  socklen_t bytes = sizeof address;
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), bytes) != 0 || ::listen(listener, 4) != 0) die("listen");
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &bytes);
  report_port(pipe, ntohs(address.sin_port));
  for (const std::size_t size : kSizes) {
    const int connection = ::accept(listener, nullptr, nullptr);
    set_no_delay(connection);
    std::vector<char> buffer(size);
    while (::recv(connection, buffer.data(), size, MSG_WAITALL) == static_cast<ssize_t>(size))
      if (::send(connection, buffer.data(), size, MSG_NOSIGNAL) < 0) break;
    ::close(connection);
  }
}

template <typename Function>
double median_us(Function trip) {
  std::vector<std::int64_t> samples(kTrips);
  for (std::int64_t& sample : samples) {
    const std::int64_t begun = now_ns();
    trip();
    sample = now_ns() - begun;
  }
  std::nth_element(samples.begin(), samples.begin() + kTrips / 2, samples.end());
  return static_cast<double>(samples[kTrips / 2]) / 1000;
}

void our_trip(ofl_client* client, const std::vector<char>& body) {
  const std::int64_t deadline = now_ns() + kSecond;
  const ofl_part part{body.data(), body.size()};
  std::uint64_t sequence = 0;
  const void* reply = nullptr;
  std::size_t bytes = 0;
  int status = ofl_client_submit(client, &part, 1, deadline, &sequence);
  if (status == OFL_OK) status = OFL_INTERRUPTED;
  while (status == OFL_INTERRUPTED) status = ofl_client_wait(client, sequence, deadline, &reply, &bytes);
  if (status != OFL_OK || bytes != body.size()) die("call");
}

}  // namespace

int main() {
  const std::uint16_t ofl_port = start_process(serve_ofl);
  const std::uint16_t raw_port = start_process(serve_raw);
  ofl_client_options options{};
  options.host = "127.0.0.1";
  options.service = "echo";
  options.port = ofl_port;
  options.version_min = options.version_max = 1;
  options.frame_bytes_max = kFrameBytesMax;
  options.heartbeat_ns = kSecond / 10;
  options.loss_ns = 2 * kSecond;
  ofl_client* client = nullptr;
  ofl_peer peer;
  if (ofl_client_connect(&options, now_ns() + kSecond, &client, &peer, nullptr, 0) != OFL_OK) die("connect");
  for (const std::size_t size : kSizes) {
    std::vector<char> body(size);
    const int raw = ::socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in address = loopback(raw_port);
    if (::connect(raw, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) die("connect");
    set_no_delay(raw);
    double ours_us = 1e9;
    double raw_us = 1e9;
    for (int round = 0; round < kRounds; ++round) {
      ours_us = std::min(ours_us, median_us([&] { our_trip(client, body); }));
      raw_us = std::min(raw_us, median_us([&] {
        if (::send(raw, body.data(), size, MSG_NOSIGNAL) < 0) die("send");
        if (::recv(raw, body.data(), size, MSG_WAITALL) != static_cast<ssize_t>(size)) die("recv");
      }));
    }
    ::close(raw);
    std::printf("%8zu bytes: ofl %7.1f us, raw %7.1f us, ratio %.2f\n", size, ours_us, raw_us, ours_us / raw_us);
  }
  ofl_client_free(client);
}
