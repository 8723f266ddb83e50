// Peers that break the rules, die, or fork; and hosts that do not give what a connection needs.

#include <chrono>
#include <thread>

#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <arpa/inet.h>

#include "check.hpp"
#include "rdma_channel.hpp"
#include "rdma_device.hpp"
#include "rdma_pair.hpp"

using namespace ofl;
using namespace rdma_pair;
using wire::FrameType;

namespace {

// A channel, and at its other end a bare queue pair that sends whatever it is told to.
struct Rogue {
  UniqueFd control;
  std::unique_ptr<QueuePair> queue_pair;
  std::unique_ptr<Channel> channel;
  Recorder recorder;

  Outcome open(Role victim) {
    UniqueFd ends[2];
    Outcome outcome = connect_control(test_address(), ends[0], ends[1]);
    UniqueFd& own = ends[victim == Role::client ? 1 : 0];
    UniqueFd& theirs = ends[victim == Role::client ? 0 : 1];
    RdmaPort port;
    if (outcome) outcome = find_rdma_port(local_address(own.get()), port);
    const Role role = victim == Role::client ? Role::server : Role::client;
    if (outcome) outcome = QueuePair::create(port, role, queue_pair);
    const std::unique_ptr<Link> link = make_rdma_link();
    if (outcome) outcome = link->open(victim, theirs.get(), 1U << 20);
    if (!outcome) return outcome;
    wire::RdmaLinkBody body{};
    std::memcpy(&body, link->ours().data(), sizeof body);
    outcome = queue_pair->connect(body);
    const wire::RdmaLinkBody mine = queue_pair->ours();
    if (outcome) outcome = link->join(std::as_bytes(std::span(&mine, 1)), {});
    if (outcome) outcome = link->finish(std::move(theirs), channel);
    control = std::move(own);
    return outcome;
  }

  bool post(std::span<const std::byte> segment, ibv_wr_opcode opcode, std::uint32_t immediate, unsigned flags = 0) {
    std::memcpy(queue_pair->slot(0).data(), segment.data(), segment.size());
    ibv_sge piece{reinterpret_cast<std::uintptr_t>(queue_pair->slot(0).data()), static_cast<std::uint32_t>(segment.size()),
                  queue_pair->local_key()};
    ibv_send_wr request{};
    request.opcode = opcode;
    request.imm_data = htonl(immediate);
    request.sg_list = &piece;
    request.num_sge = 1;
    request.send_flags = flags;
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(queue_pair->get(), &request, &bad) == 0;
  }

  bool send(std::span<const std::byte> segment, std::uint32_t credits = 0) {
    return post(segment, IBV_WR_SEND_WITH_IMM, credits);
  }

  // What the channel says of it, or "" if it takes it.
  std::string verdict() {
    const Progress progress = receive_until(*channel, recorder, [&] { return recorder.complete > 0; });
    return progress == Progress::failed ? channel->fault() : "";
  }
};

#define ROGUE(name, victim)                                                 \
  Rogue name;                                                               \
  {                                                                         \
    const Outcome opened_##name = name.open(victim);                        \
    if (!opened_##name) std::printf("%s\n", opened_##name.text.c_str());    \
    CHECK(opened_##name);                                                   \
    if (!opened_##name) return;                                             \
  }

std::vector<std::byte> segment_of(const wire::FrameHeader& header, std::size_t body_bytes) {
  std::vector<std::byte> segment(sizeof header + body_bytes);
  std::memcpy(segment.data(), &header, sizeof header);
  return segment;
}

bool says(const std::string& text, const char* words) { return text.find(words) != std::string::npos; }

}  // namespace

TEST(a_segment_without_a_header_is_refused_by_name) {
  ROGUE(rogue, Role::server);
  CHECK(rogue.send(std::vector<std::byte>(10)));
  CHECK(says(rogue.verdict(), "shorter than a header"));
}

TEST(a_header_fault_is_refused_by_name) {
  ROGUE(rogue, Role::server);
  wire::FrameHeader header = wire::make_header(FrameType::request, 1, 0);
  header.magic = 7;
  CHECK(rogue.send(segment_of(header, 0)));
  CHECK(says(rogue.verdict(), "magic"));
}

TEST(a_body_longer_than_announced_is_refused_by_name) {
  ROGUE(rogue, Role::server);
  CHECK(rogue.send(segment_of(wire::make_header(FrameType::request, 1, 5), 6)));
  CHECK(says(rogue.verdict(), "goes on after the end"));
}

TEST(credits_that_nobody_spent_are_refused_by_name) {
  ROGUE(rogue, Role::server);
  CHECK(rogue.send({}, 1));
  CHECK(says(rogue.verdict(), "more credits"));
}

TEST(a_segment_without_credits_is_refused_by_name) {
  ROGUE(rogue, Role::server);
  CHECK(rogue.post(segment_of(wire::make_header(FrameType::heartbeat, 0, 0), 0), IBV_WR_SEND, 0));
  CHECK(says(rogue.verdict(), "without its credits"));
}

TEST(a_segment_that_no_receive_takes_breaks_the_connection) {
  ROGUE(rogue, Role::server);
  // Larger than a receive: the device refuses it, and both queue pairs go into error.
  ibv_sge pieces[2] = {{reinterpret_cast<std::uintptr_t>(rogue.queue_pair->slot(0).data()), 2 * kSegmentBytes,
                        rogue.queue_pair->local_key()},
                       {}};
  ibv_send_wr request{};
  request.opcode = IBV_WR_SEND_WITH_IMM;
  request.sg_list = pieces;
  request.num_sge = 1;
  ibv_send_wr* bad = nullptr;
  CHECK(ibv_post_send(rogue.queue_pair->get(), &request, &bad) == 0);
  CHECK(says(rogue.verdict(), "IBV_WC_"));
}

namespace {

// An inbox whose owner asked for no placement.
class NoPlacements final : public Recorder {
 public:
  const char* placed(std::uint32_t slot, std::uint64_t bytes) noexcept override { return Inbox::placed(slot, bytes); }
};

}  // namespace

TEST(a_placement_that_nobody_asked_for_is_refused_by_name) {
  ROGUE(rogue, Role::client);
  std::shared_ptr<Memory> memory;
  CHECK(Memory::create(nullptr, 4096, false, memory));
  CHECK(memory->register_with(*rogue.channel->registrar()));
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(rogue.queue_pair->slot(0).data()), 8, rogue.queue_pair->local_key()};
  ibv_send_wr request{};
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request.imm_data = htonl(3);
  request.sg_list = &piece;
  request.num_sge = 1;
  request.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(memory->bytes().data());
  request.wr.rdma.rkey = memory->registration(*rogue.channel->registrar())->remote_key();
  ibv_send_wr* bad = nullptr;
  CHECK(ibv_post_send(rogue.queue_pair->get(), &request, &bad) == 0);
  NoPlacements inbox;
  CHECK(receive_until(*rogue.channel, inbox, [] { return false; }) == Progress::failed);
  CHECK(says(rogue.channel->fault(), "asked for none"));
}

TEST(the_memory_of_a_server_is_closed_to_its_clients) {
  ROGUE(rogue, Role::server);
  std::shared_ptr<Memory> memory;
  CHECK(Memory::create(nullptr, 4096, false, memory));
  CHECK(memory->register_with(*rogue.channel->registrar()));
  const std::vector<std::byte> before(memory->bytes().begin(), memory->bytes().end());
  std::memset(rogue.queue_pair->slot(0).data(), 0x5A, 8);
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(rogue.queue_pair->slot(0).data()), 8, rogue.queue_pair->local_key()};
  ibv_send_wr request{};
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  request.sg_list = &piece;
  request.num_sge = 1;
  request.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(memory->bytes().data());
  request.wr.rdma.rkey = memory->registration(*rogue.channel->registrar())->remote_key();
  ibv_send_wr* bad = nullptr;
  CHECK(ibv_post_send(rogue.queue_pair->get(), &request, &bad) == 0);
  ibv_wc done[1] = {};
  const Nanoseconds deadline = now_ns() + kPatience;
  while (rogue.queue_pair->sends().poll(done) == 0 && now_ns() < deadline) std::this_thread::yield();
  CHECK(done[0].status != IBV_WC_SUCCESS && done[0].status != IBV_WC_WR_FLUSH_ERR);
  CHECK(same(memory->bytes(), before));
}

TEST(a_link_frame_that_lies_is_refused_by_name) {
  UniqueFd ends[2];
  CHECK(connect_control(test_address(), ends[0], ends[1]));
  const std::unique_ptr<Link> server = make_rdma_link();
  const std::unique_ptr<Link> client = make_rdma_link();
  CHECK(client->open(Role::client, ends[0].get(), 1U << 20));
  CHECK(server->open(Role::server, ends[1].get(), 1U << 20));
  wire::RdmaLinkBody body{};
  std::memcpy(&body, client->ours().data(), sizeof body);
  body.gid[15] ^= 1;
  CHECK(says(server->join(std::as_bytes(std::span(&body, 1)), {}).text, "link.gid"));
  CHECK(says(server->join(client->ours().first(39), {}).text, "body_bytes"));
  CHECK(server->join(client->ours(), {}));
}

// A sender asks each time that its slots run out, and nobody may sleep in between.  An event that nobody takes would wake every
// sleeper at once, for ever, and lie in the kernel until the connection ends.
TEST(events_that_were_asked_for_again_and_again_are_all_taken) {
  ROGUE(rogue, Role::client);
  CompletionQueue& sends = rogue.queue_pair->sends();
  const std::vector<std::byte> heartbeat = segment_of(wire::make_header(FrameType::heartbeat, 0, 0), 0);
  const auto readable = [&] {
    pollfd entry{sends.descriptor(), POLLIN, 0};
    return ::poll(&entry, 1, 100) > 0;
  };
  CHECK(!sends.take_event());  // nobody asked
  for (int i = 0; i < 5; ++i) {
    CHECK(sends.ask_event());
    CHECK(rogue.post(heartbeat, IBV_WR_SEND_WITH_IMM, 0, IBV_SEND_SIGNALED));
    ibv_wc done{};
    const Nanoseconds until = now_ns() + kPatience;
    while (sends.poll({&done, 1}) == 0 && now_ns() < until) {
    }
    CHECK(done.status == IBV_WC_SUCCESS && done.opcode == IBV_WC_SEND);
    CHECK(readable());
  }
  CHECK(sends.take_event());
  CHECK(!readable());
  CHECK(!sends.take_event());
  // What is asked for after that comes.
  CHECK(sends.ask_event());
  CHECK(!sends.take_event());
  CHECK(rogue.post(heartbeat, IBV_WR_SEND_WITH_IMM, 0, IBV_SEND_SIGNALED));
  CHECK(readable());
  CHECK(sends.take_event());
  CHECK(!readable());
}

// The loop of a server ends the connections of those who stopped listening, and serves everybody else meanwhile.
TEST(the_end_of_a_servers_channel_waits_for_no_peer_that_acknowledges_nothing) {
  for (const FrameType last : {FrameType::reply, FrameType::close}) {
    ROGUE(rogue, Role::server);
    const std::vector<std::byte> heartbeat = segment_of(wire::make_header(FrameType::heartbeat, 0, 0), 0);
    CHECK(rogue.send(heartbeat));
    receive_until(*rogue.channel, rogue.recorder, [&] { return rogue.channel->bytes_received() > 0; });
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RESET;
    CHECK(rogue.queue_pair->port().device->verbs().modify_qp(rogue.queue_pair->get(), &attributes, IBV_QP_STATE) == 0);
    Outgoing frame(wire::make_header(last, last == FrameType::reply ? 1 : 0, 0), {});
    CHECK(rogue.channel->send(frame) == Progress::done);
    std::this_thread::sleep_for(std::chrono::milliseconds(last == FrameType::close ? 300 : 0));  // it had its time
    const Nanoseconds begun = now_ns();
    rogue.channel.reset();
    CHECK(now_ns() - begun < 90 * kMillisecond);  // 100 ms would be a wait for a goodbye, 500 ms one for all
  }
}

namespace {

// In INIT: it takes receives, and no sends.
Outcome make_unconnected(std::unique_ptr<QueuePair>& made) {
  std::vector<Address> addresses;
  Outcome outcome = resolve(test_address(), 0, now_ns() + kPatience, addresses);
  RdmaPort port;
  if (outcome) outcome = find_rdma_port(addresses[0], port);
  return outcome ? QueuePair::create(port, Role::client, made) : outcome;
}

// The device takes no receives while this lives.
class NoReceives {
 public:
  explicit NoReceives(const RdmaDevice& device) : operations_(device.context()->ops), real_(operations_.post_recv) {
    operations_.post_recv = [](ibv_qp*, ibv_recv_wr*, ibv_recv_wr**) { return ENOMEM; };
  }
  ~NoReceives() { operations_.post_recv = real_; }
  NoReceives(const NoReceives&) = delete;
  NoReceives& operator=(const NoReceives&) = delete;

 private:
  ibv_context_ops& operations_;
  decltype(ibv_context_ops::post_recv) const real_;
};

}  // namespace

TEST(a_send_that_the_device_does_not_take_fails_and_leaves_nothing_lent) {
  std::unique_ptr<QueuePair> queue_pair;
  CHECK(make_unconnected(queue_pair));
  if (!queue_pair) return;
  std::shared_ptr<Memory> lent;
  CHECK(Memory::create(nullptr, 4096, false, lent));
  CHECK(lent->register_with(queue_pair->device()));
  const Part part{lent->bytes().data(), 4096};
  const wire::PlacementRecord where{reinterpret_cast<std::uintptr_t>(lent->bytes().data()), 1, 4096};
  for (const bool placed : {false, true}) {
    RdmaFault fault;
    RdmaSender sender(*queue_pair, fault, {kSegmentBytes, kReceives}, true);
    Outgoing frame(wire::make_header(placed ? FrameType::reply : FrameType::request, 1, 4096), {&part, 1}, lent.get());
    CHECK((placed ? sender.place(where, frame) : sender.send(frame)) == Progress::failed);
    CHECK(fault.any() && says(fault.text(), "did not take a send"));
    CHECK(frame.sent() == 0);
    CHECK(lent->idle());
  }
}

TEST(a_receive_that_the_device_does_not_take_breaks_the_connection) {
  ROGUE(rogue, Role::server);
  CHECK(rogue.send(segment_of(wire::make_header(FrameType::heartbeat, 0, 0), 0)));
  const NoReceives none(rogue.queue_pair->device());
  CHECK(says(rogue.verdict(), "did not take a receive"));
}

TEST(a_queue_pair_without_its_receives_is_not_made) {
  std::unique_ptr<QueuePair> queue_pair;
  CHECK(make_unconnected(queue_pair));
  if (!queue_pair) return;
  const NoReceives none(queue_pair->device());
  std::unique_ptr<QueuePair> second;
  const Outcome outcome = make_unconnected(second);
  CHECK(!outcome && says(outcome.text, "cannot post a receive on") && second == nullptr);
}

TEST(a_queue_pair_that_is_destroyed_takes_no_receive) {
  std::unique_ptr<QueuePair> queue_pair;
  CHECK(make_unconnected(queue_pair));
  if (!queue_pair) return;
  CHECK(queue_pair->destroy());
  CHECK(!queue_pair->post_receive(0) && errno == ENODEV);
  CHECK(queue_pair->destroy());  // it is still gone
}

TEST(an_address_without_a_device_is_refused_by_name) {
  Registrar* registrar = nullptr;
  Address loopback;
  auto* four = reinterpret_cast<sockaddr_in*>(&loopback.storage);
  four->sin_family = AF_INET;
  four->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  loopback.bytes = sizeof *four;
  const Outcome outcome = check_rdma_address(loopback, registrar);
  CHECK(!outcome && says(outcome.text, "127.0.0.1 (lo)") && registrar == nullptr);
  std::string text;
  CHECK(!explain_rdma_address(loopback, text));
  CHECK(rdma_available());
}

namespace {

// Runs in a child of fork(), with a fresh context of its own there.  The child's exit status.
template <typename Function>
int in_child(Function function) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(function());
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int echo_once() {
  Pair pair;
  if (!connect_pair(test_address(), pair)) return 2;
  Recorder client;
  Recorder server;
  const std::vector<std::byte> body = pattern(40'000, 1);
  const Part part{body.data(), body.size()};
  Outgoing frame(wire::make_header(FrameType::request, 1, body.size()), {&part, 1});
  if (send_all(*pair.client, frame, client) != Progress::done) return 3;
  receive_until(*pair.server, server, [&] { return server.complete == 1; });
  return server.complete == 1 && same(server.frames[0].body, body) ? 0 : 4;
}

}  // namespace

TEST(a_child_of_fork_opens_its_own_device_and_leaves_the_parents_alone) {
  Pair pair;
  CHECK(connect_pair(test_address(), pair));
  std::shared_ptr<Memory> memory;
  CHECK(Memory::create(nullptr, 1 << 20, false, memory));
  CHECK(memory->register_with(*pair.client->registrar()));
  const int status = in_child([&] {
    pair.client.reset();  // the child's descriptors only
    pair.server.reset();
    memory.reset();
    return echo_once();
  });
  CHECK(status == 0);
  // The parent's connection has not noticed.
  Recorder client;
  Recorder server;
  const std::vector<std::byte> body = pattern(50'000, 2);
  const Part part{body.data(), body.size()};
  Outgoing frame(wire::make_header(FrameType::request, 1, body.size()), {&part, 1});
  CHECK(send_all(*pair.client, frame, client) == Progress::done);
  receive_until(*pair.server, server, [&] { return server.complete == 1; });
  CHECK(server.complete == 1 && same(server.frames[0].body, body));
  CHECK(echo_once() == 0);
}

TEST(a_killed_peer_is_seen_at_once) {
  UniqueFd ends[2];
  CHECK(connect_control(test_address(), ends[0], ends[1]));
  int link_pipe[4];
  CHECK(::pipe(link_pipe) == 0 && ::pipe(link_pipe + 2) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::unique_ptr<Link> link = make_rdma_link();
    ends[1].reset();
    if (!link->open(Role::client, ends[0].get(), 1U << 20)) ::_exit(2);
    if (::write(link_pipe[1], link->ours().data(), sizeof(wire::RdmaLinkBody)) < 0) ::_exit(3);
    std::byte theirs[sizeof(wire::RdmaLinkBody)];
    if (::read(link_pipe[2], theirs, sizeof theirs) != sizeof theirs || !link->join(theirs, {})) ::_exit(4);
    std::unique_ptr<Channel> channel;
    if (!link->finish(std::move(ends[0]), channel)) ::_exit(5);
    ::pause();
  }
  ends[0].reset();
  const std::unique_ptr<Link> link = make_rdma_link();
  CHECK(link->open(Role::server, ends[1].get(), 1U << 20));
  std::byte theirs[sizeof(wire::RdmaLinkBody)];
  CHECK(::read(link_pipe[0], theirs, sizeof theirs) == sizeof theirs);
  CHECK(link->join(theirs, {}));
  CHECK(::write(link_pipe[3], link->ours().data(), sizeof theirs) == sizeof theirs);
  std::unique_ptr<Channel> channel;
  CHECK(link->finish(std::move(ends[1]), channel));
  Recorder recorder;
  receive_until(*channel, recorder, [&] { return channel->bytes_received() > 0; });
  ::kill(child, SIGKILL);
  const Nanoseconds killed = now_ns();
  const Progress end = receive_until(*channel, recorder, [] { return false; });
  CHECK(end == Progress::closed || end == Progress::failed);
  CHECK(now_ns() - killed < 5 * kSecond);  // retries of the queue pair alone would take longer
  ::waitpid(child, nullptr, 0);
  for (const int end_of_pipe : link_pipe) ::close(end_of_pipe);
}

namespace {

// Gives up CAP_IPC_LOCK and most of the locked memory.
bool tighten_memlock(rlim_t bytes) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (::syscall(SYS_capget, &header, data) != 0) return false;
  data[0].effective &= ~(1U << CAP_IPC_LOCK);
  data[0].permitted &= ~(1U << CAP_IPC_LOCK);
  const rlimit limit{bytes, bytes};
  return ::syscall(SYS_capset, &header, data) == 0 && ::setrlimit(RLIMIT_MEMLOCK, &limit) == 0;
}

}  // namespace

TEST(too_little_locked_memory_is_explained_with_the_need_and_the_command) {
  const int status = in_child([] {
    if (!tighten_memlock(1 << 20)) return 77;
    Pair pair;
    const Outcome outcome = connect_pair(test_address(), pair);
    std::printf("%s\n", outcome.text.c_str());
    std::fflush(stdout);
    const std::string need = std::to_string((kReceives + kSendSlots) * kSegmentBytes);
    const bool good = !outcome && says(outcome.text, "1048576 bytes (ulimit -l 1024)") && says(outcome.text, need.c_str()) &&
                      says(outcome.text, "ulimit -l unlimited") && says(outcome.text, "LimitMEMLOCK") &&
                      says(outcome.text, "--ulimit memlock=-1");
    return good ? 0 : 1;
  });
  if (status == 77) SKIP("this process may not give up a capability");
  CHECK(status == 0);
}

TEST(memory_that_is_not_there_is_not_registered) {
  Pair pair;
  CHECK(connect_pair(test_address(), pair));
  std::unique_ptr<Registration> registration;
  const Outcome outcome =
      pair.client->registrar()->add({reinterpret_cast<std::byte*>(4096), 4096}, registration);  // the null page's neighbour
  CHECK(!outcome && says(outcome.text, "cannot register 4096 bytes"));
}
