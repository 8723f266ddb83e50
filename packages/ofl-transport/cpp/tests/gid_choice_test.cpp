// The choice of device, port and GID for an address: every kind of table that hosts are known to have.

#include "gid_choice.hpp"

#include <filesystem>
#include <fstream>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include "check.hpp"

using namespace ofl;

namespace {

Address address(const std::string& text) {
  Address made;
  auto* six = reinterpret_cast<sockaddr_in6*>(&made.storage);
  auto* four = reinterpret_cast<sockaddr_in*>(&made.storage);
  if (::inet_pton(AF_INET6, text.c_str(), &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    made.bytes = sizeof *six;
  } else {
    four->sin_family = AF_INET;
    ::inet_pton(AF_INET, text.c_str(), &four->sin_addr);
    made.bytes = sizeof *four;
  }
  return made;
}

Gid gid(const std::string& text) { return gid_of(address(text)); }

GidEntry entry(std::uint32_t index, const std::string& text, GidType type, const std::string& netdev,
               const std::string& device = "mlx5_0") {
  return {device, 1, index, gid(text), type, netdev, "Ethernet", "ACTIVE"};
}

constexpr GidType kV1 = GidType::infiniband_or_roce_v1;
constexpr GidType kV2 = GidType::roce_v2;

// The table of a usual two-port card: link-local first, then one IPv4 address, each as v1 and v2.
std::vector<GidEntry> usual_table() {
  return {entry(0, "fe80::1", kV1, "eth0"),      entry(1, "fe80::1", kV2, "eth0"),
          entry(2, "10.0.0.1", kV1, "eth0"),     entry(3, "10.0.0.1", kV2, "eth0"),
          entry(0, "fe80::2", kV1, "eth1", "mlx5_1"), entry(1, "fe80::2", kV2, "eth1", "mlx5_1"),
          entry(2, "10.0.1.1", kV1, "eth1", "mlx5_1"), entry(3, "10.0.1.1", kV2, "eth1", "mlx5_1")};
}

// The index chosen on the device, or the text of the refusal.
std::string chosen(const std::vector<GidEntry>& entries, const std::string& local, const std::string& netdev) {
  GidChoice choice;
  const Outcome outcome = choose_gid(entries, gid(local), netdev, choice);
  return outcome ? choice.entry.device + ":" + std::to_string(choice.entry.index) : outcome.text;
}

bool says(const std::string& text, const char* words) { return text.find(words) != std::string::npos; }

}  // namespace

TEST(the_gid_of_an_ipv4_address_is_the_mapped_one) {
  CHECK(gid_text(gid("10.0.0.1")) == "10.0.0.1");
  CHECK(gid("10.0.0.1")[10] == 0xFF && gid("10.0.0.1")[11] == 0xFF && gid("10.0.0.1")[15] == 1);
  CHECK(gid("::ffff:10.0.0.1") == gid("10.0.0.1"));
  CHECK(gid_text(gid("fd00::7")) == "fd00::7");
}

TEST(roce_v2_goes_before_v1) {
  CHECK(chosen(usual_table(), "10.0.0.1", "eth0") == "mlx5_0:3");
  std::vector<GidEntry> swapped = {entry(0, "10.0.0.1", kV2, "eth0"), entry(1, "10.0.0.1", kV1, "eth0")};
  CHECK(chosen(swapped, "10.0.0.1", "eth0") == "mlx5_0:0");
}

TEST(roce_v1_is_taken_where_there_is_no_v2) {
  const std::vector<GidEntry> old_card = {entry(0, "fe80::1", kV1, "eth0"), entry(1, "10.0.0.1", kV1, "eth0")};
  CHECK(chosen(old_card, "10.0.0.1", "eth0") == "mlx5_0:1");
}

// While an address comes up, its entries are added one after the other: what was chosen then is not for ever.
TEST(a_choice_that_an_entry_added_later_would_change_is_made_again) {
  const GidEntry v1 = entry(2, "10.0.0.1", kV1, "eth0");
  const GidEntry v2 = entry(3, "10.0.0.1", kV2, "eth0");
  const GidEntry unnamed = entry(4, "10.0.0.1", kV2, "");
  for (const GidEntry& first : {v1, v2, unnamed}) {
    for (const GidEntry& later : {v1, v2, unnamed}) {
      GidChoice choice;
      CHECK(choose_gid(std::vector{first, later}, first.gid, "eth0", choice));
      CHECK(choice.entry.index == first.index || !none_is_better(first));
    }
  }
  CHECK(none_is_better(v2));
}

TEST(the_device_follows_the_address) {
  CHECK(chosen(usual_table(), "10.0.1.1", "eth1") == "mlx5_1:3");
  GidChoice choice;
  CHECK(choose_gid(usual_table(), gid("10.0.1.1"), "eth1", choice));
  CHECK(says(choice.reason, "mlx5_1 port 1 GID 3 10.0.1.1 (RoCE v2 on eth1)"));
}

TEST(unique_local_and_global_ipv6_are_found) {
  std::vector<GidEntry> six_only = {entry(0, "fe80::1", kV2, "eth0"), entry(1, "fd00:1::7", kV2, "eth0"),
                                    entry(2, "2001:db8::7", kV2, "eth0")};
  CHECK(chosen(six_only, "fd00:1::7", "eth0") == "mlx5_0:1");
  CHECK(chosen(six_only, "2001:db8::7", "eth0") == "mlx5_0:2");
}

TEST(a_link_local_address_is_its_own_interfaces) {
  std::vector<GidEntry> twins = {entry(0, "fe80::1", kV2, "eth0"), entry(0, "fe80::1", kV2, "eth1", "mlx5_1")};
  CHECK(chosen(twins, "fe80::1", "eth1") == "mlx5_1:0");
  CHECK(chosen(twins, "fe80::1", "eth0") == "mlx5_0:0");
  const std::string refusal = chosen(twins, "fe80::1", "eth2");
  CHECK(says(refusal, "fe80::1 (eth2)") && says(refusal, "belongs to eth2"));
  twins[0].netdev.clear();
  CHECK(says(chosen({twins[0]}, "fe80::1", "eth0"), "does not say of which interface"));
}

TEST(an_entry_without_an_interface_serves_a_routable_address) {
  const std::vector<GidEntry> old_kernel = {entry(0, "10.0.0.1", kV1, ""), entry(1, "10.0.0.1", kV2, "")};
  CHECK(chosen(old_kernel, "10.0.0.1", "eth0") == "mlx5_0:1");
  const std::vector<GidEntry> mixed = {entry(0, "10.0.0.1", kV2, ""), entry(1, "10.0.0.1", kV2, "eth0")};
  CHECK(chosen(mixed, "10.0.0.1", "eth0") == "mlx5_0:1");
}

TEST(zero_gids_are_no_gids) {
  std::vector<GidEntry> padded = {entry(0, "::", kV2, "eth0"), entry(1, "10.0.0.1", kV2, "eth0")};
  CHECK(chosen(padded, "10.0.0.1", "eth0") == "mlx5_0:1");
  CHECK(says(chosen(padded, "::", "eth0"), "wildcard"));
  const std::string refusal = chosen({padded[0]}, "10.0.0.2", "eth0");
  CHECK(says(refusal, "no RDMA device carries 10.0.0.2 (eth0)") && !says(refusal, "GID 0"));
}

TEST(a_bond_is_served_by_the_port_that_carries_its_address) {
  // The bond owns the address; its members keep link-local GIDs of their own.
  const std::vector<GidEntry> bonded = {entry(0, "fe80::1", kV2, "eth0"), entry(1, "fe80::b", kV2, "bond0"),
                                        entry(2, "10.0.0.1", kV1, "bond0"), entry(3, "10.0.0.1", kV2, "bond0")};
  CHECK(chosen(bonded, "10.0.0.1", "bond0") == "mlx5_0:3");
  // Both members carry it, and one of them is down.
  std::vector<GidEntry> two = {entry(3, "10.0.0.1", kV2, "bond0"), entry(3, "10.0.0.1", kV2, "bond0", "mlx5_1")};
  two[0].state = "DOWN";
  CHECK(chosen(two, "10.0.0.1", "bond0") == "mlx5_1:3");
}

TEST(a_bridge_of_containers_is_refused_by_name) {
  const std::string refusal = chosen(usual_table(), "172.17.0.1", "docker0");
  CHECK(says(refusal, "no RDMA device carries 172.17.0.1 (docker0)"));
  CHECK(says(refusal, "mlx5_0 port 1 GID 3 10.0.0.1 (RoCE v2 on eth0)"));
  CHECK(says(refusal, "and 2 more"));  // eight entries, six listed
}

TEST(the_same_address_on_another_interface_is_refused_by_name) {
  const std::string refusal = chosen(usual_table(), "10.0.0.1", "eth1");
  CHECK(says(refusal, "has this GID, but the address belongs to eth1"));
}

TEST(a_port_must_be_active) {
  std::vector<GidEntry> down = usual_table();
  for (GidEntry& one : down) one.state = "DOWN";
  CHECK(says(chosen(down, "10.0.0.1", "eth0"), "mlx5_0 port 1 is DOWN, not ACTIVE"));
}

TEST(infiniband_is_refused_by_name) {
  GidEntry fabric = entry(0, "fe80::1", kV1, "");
  fabric.link_layer = "InfiniBand";
  CHECK(says(chosen({fabric}, "fe80::1", "ib0"), "mlx5_0 port 1 has link layer InfiniBand"));
  CHECK(says(chosen({fabric}, "10.0.0.1", "ib0"), "mlx5_0 port 1 has link layer InfiniBand"));
}

TEST(a_type_that_is_unknown_is_refused_by_name) {
  CHECK(says(chosen({entry(4, "10.0.0.1", GidType::unknown, "eth0")}, "10.0.0.1", "eth0"), "GID 4 10.0.0.1 (unknown type"));
}

TEST(an_index_that_verbs_cannot_name_is_refused_by_name) {
  CHECK(says(chosen({entry(256, "10.0.0.1", kV2, "eth0")}, "10.0.0.1", "eth0"), "stands beyond index 255"));
  CHECK(chosen({entry(255, "10.0.0.1", kV2, "eth0")}, "10.0.0.1", "eth0") == "mlx5_0:255");
}

TEST(a_host_without_devices_says_so) {
  CHECK(says(chosen({}, "10.0.0.1", "eth0"), "this host has none with a GID"));
  CHECK(read_gids("/nonexistent").empty());
}

TEST(the_interface_that_owns_an_address_is_found) {
  std::string netdev;
  CHECK(owner_of(address("127.0.0.1"), netdev) && netdev == "lo");
  const Outcome outcome = owner_of(address("203.0.113.9"), netdev);  // a documentation network: nobody's
  CHECK(!outcome && says(outcome.text, "no interface of this host has the address 203.0.113.9"));
}

namespace {

// A copy of the kernel's layout in a folder of its own.
class Tables {
 public:
  Tables() {
    char name[] = "/tmp/ofl-gids-XXXXXX";
    root_ = ::mkdtemp(name);
  }
  ~Tables() { std::filesystem::remove_all(root_); }
  Tables(const Tables&) = delete;
  Tables& operator=(const Tables&) = delete;

  const std::string& root() const { return root_; }
  void write(const std::string& path, const std::string& line) const {
    const std::filesystem::path file = root_ + "/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << line << "\n";
  }
  void port(const std::string& device, const std::string& state, const std::string& link_layer) const {
    write(device + "/node_type", "1: CA");
    write(device + "/ports/1/state", state);
    write(device + "/ports/1/link_layer", link_layer);
  }
  void gid(const std::string& device, int index, const std::string& text, const std::string& type,
           const std::string& netdev) const {
    const std::string folder = device + "/ports/1/";
    const std::string number = std::to_string(index);
    write(folder + "gids/" + number, text);
    if (type.empty()) return;  // the kernel refuses to read the attributes of an unused index
    write(folder + "gid_attrs/types/" + number, type);
    write(folder + "gid_attrs/ndevs/" + number, netdev);
  }

 private:
  std::string root_;
};

}  // namespace

TEST(the_kernels_tables_are_read_as_they_are_written) {
  const Tables tables;
  tables.port("rxe0", "4: ACTIVE", "Ethernet");
  tables.gid("rxe0", 0, "fe80:0000:0000:0000:5054:00ff:fe77:0001", "RoCE v2", "eth0");
  tables.gid("rxe0", 1, "0000:0000:0000:0000:0000:ffff:0a4d:0001", "RoCE v2", "eth0");
  tables.gid("rxe0", 2, "0000:0000:0000:0000:0000:0000:0000:0000", "", "");
  tables.gid("rxe0", 10, "0000:0000:0000:0000:0000:ffff:0a4d:0002", "IB/RoCE v1", "eth0");
  tables.port("mlx5_0", "1: DOWN", "InfiniBand");
  tables.gid("mlx5_0", 0, "fe80:0000:0000:0000:0000:0000:0000:0009", "IB/RoCE v1", "");
  const std::vector<GidEntry> entries = read_gids(tables.root());
  CHECK(entries.size() == 4);
  if (entries.size() != 4) return;
  CHECK(entries[0].device == "mlx5_0" && entries[0].link_layer == "InfiniBand" && entries[0].state == "DOWN");
  CHECK(entries[2].index == 1 && entries[2].gid == gid("10.77.0.1") && entries[2].type == kV2);
  CHECK(entries[2].netdev == "eth0" && entries[2].state == "ACTIVE" && entries[2].port == 1);
  CHECK(entries[3].index == 10 && entries[3].type == kV1);
  CHECK(chosen(entries, "10.77.0.1", "eth0") == "rxe0:1");
}

TEST(an_iwarp_device_is_not_taken_for_roce) {
  const Tables tables;
  tables.port("siw0", "4: ACTIVE", "Ethernet");
  tables.write("siw0/node_type", "4: RNIC");
  tables.gid("siw0", 0, "0000:0000:0000:0000:0000:ffff:0a4d:0001", "IB/RoCE v1", "eth0");
  CHECK(says(chosen(read_gids(tables.root()), "10.77.0.1", "eth0"), "siw0 port 1 has link layer iWARP"));
}

TEST(a_changed_entry_is_noticed) {
  const Tables tables;
  tables.port("rxe0", "4: ACTIVE", "Ethernet");
  tables.gid("rxe0", 1, "0000:0000:0000:0000:0000:ffff:0a4d:0001", "RoCE v2", "eth0");
  const std::vector<GidEntry> entries = read_gids(tables.root());
  CHECK(entries.size() == 1);
  if (entries.empty()) return;
  CHECK(still_there(entries[0], tables.root()));
  tables.port("rxe0", "1: DOWN", "Ethernet");
  CHECK(!still_there(entries[0], tables.root()));
  tables.port("rxe0", "4: ACTIVE", "Ethernet");
  tables.gid("rxe0", 1, "0000:0000:0000:0000:0000:ffff:0a4d:0002", "RoCE v2", "eth0");
  CHECK(!still_there(entries[0], tables.root()));
  CHECK(!still_there(entries[0], "/nonexistent"));
}
