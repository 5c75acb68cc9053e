// The `qsdrr` scenario of Nilometer's simulator, written for ns-3: greedy TCP over one bottleneck.
//
// 100 sources - 10 Mb/s - R1 - 500 Mb/s - R2 - 10 Mb/s - 100 destinations. Every source sends as
// much as TCP lets it, all base round-trip times are equal, and the one queue that matters stands
// at R1. The program exists to be a peer: of the results (mean and spread of goodput) and of the
// speed (packet-hops per CPU-second). README.md says how to build it and what was chosen and why.
//
// Standard output is one line of JSON. Nothing is logged or traced while it runs: packet-hops are
// read from the counters that every NIC queue keeps anyway.

#include <ns3/applications-module.h>
#include <ns3/core-module.h>
#include <ns3/internet-module.h>
#include <ns3/network-module.h>
#include <ns3/point-to-point-module.h>
#include <ns3/traffic-control-module.h>

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <numeric>
#include <string>
#include <vector>

using namespace ns3;

namespace
{

constexpr uint32_t PACKET_BYTES = 1500;  // an IP packet that carries a full segment
constexpr uint32_t SEGMENT_BYTES = 1460; // without TCP options: timestamps are off
constexpr uint32_t WINDOW_BYTES = 4 << 20;
constexpr uint16_t SINK_PORT = 5001;
constexpr uint32_t MAX_FLOWS = 16384;
constexpr const char* ACCESS_QUEUE = "10000p"; // far more than a window: nothing is lost there
constexpr const char* BOTTLENECK_NIC_QUEUE = "1p";

/// What the command line can change; rates in Mb/s, times in ms unless the name says otherwise.
struct Options
{
    std::string queue = "fifo";
    uint32_t buffer = 200; // packets
    double seconds = 100;
    uint32_t seed = 1;
    uint32_t flows = 100;
    double rtt = 100;
    double accessDelay = 5;
    double destinationDelay = 5;
    double bottleneckRate = 500;
    double accessRate = 10;
    double jitter = 0;
    double overhead = 0;        // microseconds
    uint32_t initialWindow = 2; // segments
    double minRto = 1000;
    std::string recovery = "classic";
    std::string flowsFile;

    double BottleneckDelay() const
    {
        return rtt / 2 - accessDelay - destinationDelay;
    }

    double FairShareBps() const
    {
        return bottleneckRate * 1e6 / flows;
    }
};

/// One line on standard error, then exit status 2: it could not run.
[[noreturn]] void
Refuse(const std::string& why)
{
    std::cerr << "dumbbell: " << why << std::endl;
    std::exit(2);
}

void
Check(const Options& options)
{
    if (options.queue != "fifo" && options.queue != "red" && options.queue != "fqcodel")
    {
        Refuse("--queue=" + options.queue + ": give fifo, red or fqcodel");
    }
    if (options.recovery != "classic" && options.recovery != "prr")
    {
        Refuse("--recovery=" + options.recovery + ": give classic or prr");
    }
    if (options.flows < 1 || options.flows > MAX_FLOWS)
    {
        Refuse("--flows: give 1 to " + std::to_string(MAX_FLOWS));
    }
    if (options.buffer < 1 || options.seed < 1 || options.initialWindow < 1)
    {
        Refuse("--buffer, --seed and --initial-window: give 1 or more");
    }
    if (options.accessDelay < 0 || options.destinationDelay < 0 || options.BottleneckDelay() < 0)
    {
        Refuse("--rtt: half of it must hold --access-delay and --destination-delay");
    }
    const bool positive = options.seconds > 0 && options.bottleneckRate > 0 &&
                          options.accessRate > 0 && options.minRto > 0 && options.jitter >= 0 &&
                          options.overhead >= 0;
    if (!positive)
    {
        Refuse("--jitter and --overhead cannot be negative, other times and rates not 0 either");
    }
}

Options
Parse(int argc, char** argv)
{
    Options o;
    CommandLine line(__FILE__);
    line.AddValue("queue", "queue disc at R1: fifo, red or fqcodel", o.queue);
    line.AddValue("buffer", "its buffer, in packets", o.buffer);
    line.AddValue("seconds", "simulated time", o.seconds);
    line.AddValue("seed", "seed of RED's drops and of the jitter, from 1", o.seed);
    line.AddValue("flows", "sources, and destinations", o.flows);
    line.AddValue("rtt", "base round-trip time, ms; the bottleneck gets what is left", o.rtt);
    line.AddValue("access-delay", "source to R1, one way, ms", o.accessDelay);
    line.AddValue("destination-delay", "R2 to destination, one way, ms", o.destinationDelay);
    line.AddValue("bottleneck-rate", "R1 to R2, Mb/s", o.bottleneckRate);
    line.AddValue("access-rate", "of all other links, Mb/s", o.accessRate);
    line.AddValue("jitter", "flows start uniformly within so many ms", o.jitter);
    line.AddValue("overhead", "hosts take up to so many us before each packet", o.overhead);
    line.AddValue("initial-window", "segments", o.initialWindow);
    line.AddValue("min-rto", "least retransmission timeout, ms", o.minRto);
    line.AddValue("recovery", "fast recovery: classic or prr", o.recovery);
    line.AddValue("flows-file", "write each flow's goodput to this file, as CSV", o.flowsFile);
    line.Parse(argc, argv);
    Check(o);
    return o;
}

Time
Milliseconds(double ms)
{
    return Seconds(ms / 1e3);
}

std::string
MegabitsPerSecond(double rate)
{
    return std::to_string(std::llround(rate * 1e6)) + "bps";
}

/// TCP as the scenario has it. SACK stays on: without it ns-3 sends again what has arrived
/// (nsnam/ns-3-dev issue 1107).
void
ConfigureTcp(const Options& options)
{
    const std::string recovery =
        options.recovery == "prr" ? "ns3::TcpPrrRecovery" : "ns3::TcpClassicRecovery";
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpNewReno::GetTypeId()));
    Config::SetDefault("ns3::TcpL4Protocol::RecoveryType",
                       TypeIdValue(TypeId::LookupByName(recovery)));
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(true));
    Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(false));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(Milliseconds(options.minRto)));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(SEGMENT_BYTES));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(options.initialWindow));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(1));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(WINDOW_BYTES));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(WINDOW_BYTES));
}

/// The nodes and links, and what is read from them at the end.
struct Network
{
    NodeContainer sources;
    NodeContainer destinations;
    NodeContainer routers; // R1, R2
    NetDeviceContainer devices;
    Ptr<QueueDisc> bottleneck;
    std::vector<Ipv4Address> destinationAddresses;
};

Ptr<QueueDisc>
InstallBottleneckQueue(const Options& options, Ptr<NetDevice> device)
{
    const QueueSizeValue size(QueueSize(QueueSizeUnit::PACKETS, options.buffer));
    TrafficControlHelper helper;
    if (options.queue == "fifo")
    {
        helper.SetRootQueueDisc("ns3::FifoQueueDisc", "MaxSize", size);
    }
    else if (options.queue == "fqcodel")
    {
        helper.SetRootQueueDisc("ns3::FqCoDelQueueDisc", "MaxSize", size);
    }
    else
    {
        const double buffer = options.buffer;
        helper.SetRootQueueDisc("ns3::RedQueueDisc",
                                "MaxSize", size,
                                "MinTh", DoubleValue(0.2 * buffer),
                                "MaxTh", DoubleValue(buffer),
                                "QW", DoubleValue(0.001),
                                "LInterm", DoubleValue(100), // 1 / max_p
                                "Gentle", BooleanValue(false),
                                "UseEcn", BooleanValue(false),
                                "MeanPktSize", UintegerValue(PACKET_BYTES),
                                "LinkBandwidth",
                                StringValue(MegabitsPerSecond(options.bottleneckRate)),
                                "LinkDelay",
                                TimeValue(Milliseconds(options.BottleneckDelay())));
    }
    return helper.Install(device).Get(0);
}

/// A host's wire: each packet takes a random time more, so that flows do not lock into phase with
/// the queue (Floyd and Jacobson 1992). Packets stay in order, however long it is.
class HostChannel : public PointToPointChannel
{
  public:
    explicit HostChannel(double overhead)
        : m_overhead(overhead)
    {
    }

    bool TransmitStart(Ptr<const Packet> packet,
                       Ptr<PointToPointNetDevice> device,
                       Time duration) override
    {
        const Time more = MicroSeconds(1) * m_uniform->GetValue(0, m_overhead);
        Time& sent = m_sent[device == GetPointToPointDevice(0) ? 0 : 1];
        sent = std::max(sent, Simulator::Now() + duration + more);
        return PointToPointChannel::TransmitStart(packet, device, sent - Simulator::Now());
    }

  private:
    double m_overhead; // microseconds
    Time m_sent[2];    // when each end's packet before was sent
    Ptr<UniformRandomVariable> m_uniform = CreateObject<UniformRandomVariable>();
};

/// Puts a host's link on a wire that takes its time.
void
Delay(const NetDeviceContainer& ends, double delay, double overhead)
{
    Ptr<HostChannel> channel = CreateObject<HostChannel>(overhead);
    channel->SetAttribute("Delay", TimeValue(Milliseconds(delay)));
    for (uint32_t end = 0; end < ends.GetN(); ++end)
    {
        ends.Get(end)->GetObject<PointToPointNetDevice>()->Attach(channel);
    }
}

NetDeviceContainer
Join(double rate, double delay, const char* nicQueue, Ptr<Node> left, Ptr<Node> right)
{
    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", StringValue(MegabitsPerSecond(rate)));
    link.SetChannelAttribute("Delay", TimeValue(Milliseconds(delay)));
    link.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue(nicQueue));
    return link.Install(left, right);
}

/// Gives both ends addresses, takes off the queue discs that this puts on, and returns the
/// address of the first end.
Ipv4Address
Address(Ipv4AddressHelper& subnets, const NetDeviceContainer& ends)
{
    const Ipv4InterfaceContainer interfaces = subnets.Assign(ends);
    subnets.NewNetwork();
    TrafficControlHelper().Uninstall(ends);
    return interfaces.GetAddress(0);
}

void
RouteVia(Ptr<Node> node, const char* network, const char* mask, Ipv4Address gateway, uint32_t port)
{
    Ipv4StaticRoutingHelper helper;
    Ptr<Ipv4StaticRouting> table = helper.GetStaticRouting(node->GetObject<Ipv4>());
    table->AddNetworkRouteTo(network, mask, gateway, port);
}

/// Interface 0 of every node is its loopback; interface 1 of each router is the bottleneck.
Network
Build(const Options& options)
{
    Network network;
    network.sources.Create(options.flows);
    network.destinations.Create(options.flows);
    network.routers.Create(2);
    InternetStackHelper stack;
    Ipv4StaticRoutingHelper routing; // the global one would scan host routes for every packet
    stack.SetRoutingHelper(routing);
    stack.SetIpv6StackInstall(false);
    stack.InstallAll();

    const Ptr<Node> r1 = network.routers.Get(0);
    const Ptr<Node> r2 = network.routers.Get(1);
    const NetDeviceContainer middle =
        Join(options.bottleneckRate, options.BottleneckDelay(), BOTTLENECK_NIC_QUEUE, r1, r2);
    // Back from R2 come only ACKs, and no queue disc: the NIC must hold them.
    middle.Get(1)->GetObject<PointToPointNetDevice>()->GetQueue()->SetMaxSize(
        QueueSize(ACCESS_QUEUE));
    Ipv4AddressHelper subnets("10.0.0.0", "255.255.255.252");
    const Ipv4Address r1Middle = Address(subnets, middle);
    const Ipv4Address r2Middle = Ipv4Address(r1Middle.Get() + 1);
    network.bottleneck = InstallBottleneckQueue(options, middle.Get(0));
    network.devices.Add(middle);
    RouteVia(r1, "10.2.0.0", "255.255.0.0", r2Middle, 1);
    RouteVia(r2, "10.1.0.0", "255.255.0.0", r1Middle, 1);

    Ipv4AddressHelper sourceSubnets("10.1.0.0", "255.255.255.252");
    Ipv4AddressHelper destinationSubnets("10.2.0.0", "255.255.255.252");
    for (uint32_t flow = 0; flow < options.flows; ++flow)
    {
        const Ptr<Node> source = network.sources.Get(flow);
        const NetDeviceContainer first =
            Join(options.accessRate, options.accessDelay, ACCESS_QUEUE, r1, source);
        if (options.overhead > 0)
        {
            Delay(first, options.accessDelay, options.overhead);
        }
        RouteVia(source, "0.0.0.0", "0.0.0.0", Address(sourceSubnets, first), 1);
        const Ptr<Node> destination = network.destinations.Get(flow);
        const NetDeviceContainer last =
            Join(options.accessRate, options.destinationDelay, ACCESS_QUEUE, r2, destination);
        if (options.overhead > 0)
        {
            Delay(last, options.destinationDelay, options.overhead);
        }
        const Ipv4Address gateway = Address(destinationSubnets, last);
        RouteVia(destination, "0.0.0.0", "0.0.0.0", gateway, 1);
        network.destinationAddresses.emplace_back(gateway.Get() + 1);
        network.devices.Add(first);
        network.devices.Add(last);
    }
    return network;
}

/// One greedy flow: its start and the application that counts what arrived in order.
struct Flow
{
    double startSeconds;
    Ptr<PacketSink> sink;
};

std::vector<Flow>
StartFlows(const Options& options, const Network& network)
{
    Ptr<UniformRandomVariable> jitter = CreateObject<UniformRandomVariable>();
    std::vector<Flow> flows;
    for (uint32_t flow = 0; flow < options.flows; ++flow)
    {
        const InetSocketAddress here(Ipv4Address::GetAny(), SINK_PORT);
        PacketSinkHelper sink("ns3::TcpSocketFactory", here);
        const ApplicationContainer arrived = sink.Install(network.destinations.Get(flow));
        const InetSocketAddress there(network.destinationAddresses[flow], SINK_PORT);
        BulkSendHelper greedy("ns3::TcpSocketFactory", there);
        greedy.SetAttribute("SendSize", UintegerValue(SEGMENT_BYTES));
        const double start = jitter->GetValue(0, options.jitter) / 1e3;
        greedy.Install(network.sources.Get(flow)).Start(Seconds(start));
        flows.push_back({start, arrived.Get(0)->GetObject<PacketSink>()});
    }
    return flows;
}

/// Packets that the NICs have taken from their queues: all that were sent, each link a hop. The
/// last packet of a link may be on its way still, so that it is PhyTxEnd and at most one a NIC.
uint64_t
PacketHops(const NetDeviceContainer& devices)
{
    uint64_t hops = 0;
    for (uint32_t i = 0; i < devices.GetN(); ++i)
    {
        const auto queue = devices.Get(i)->GetObject<PointToPointNetDevice>()->GetQueue();
        hops += queue->GetTotalReceivedPackets() - queue->GetNPackets();
    }
    return hops;
}

uint64_t
NicDrops(const NetDeviceContainer& devices)
{
    uint64_t drops = 0;
    for (uint32_t i = 0; i < devices.GetN(); ++i)
    {
        const auto queue = devices.Get(i)->GetObject<PointToPointNetDevice>()->GetQueue();
        drops += queue->GetTotalDroppedPackets();
    }
    return drops;
}

/// In-order payload, counted as the 1500-byte packets that carried it, over all of the run.
std::vector<double>
GoodputBps(const Options& options, const std::vector<Flow>& flows)
{
    std::vector<double> goodput;
    for (const Flow& flow : flows)
    {
        const double packets = static_cast<double>(flow.sink->GetTotalRx()) / SEGMENT_BYTES;
        goodput.push_back(packets * PACKET_BYTES * 8 / options.seconds);
    }
    return goodput;
}

void
WriteFlows(const Options& options, const std::vector<Flow>& flows)
{
    const std::vector<double> goodput = GoodputBps(options, flows);
    std::ofstream file(options.flowsFile);
    file << "flow,start_seconds,goodput_bps,percent_of_fair_share\n" << std::setprecision(10);
    for (size_t i = 0; i < flows.size(); ++i)
    {
        file << i << ',' << flows[i].startSeconds << ',' << goodput[i] << ','
             << 100 * goodput[i] / options.FairShareBps() << '\n';
    }
    file.close();
    if (!file)
    {
        Refuse("--flows-file=" + options.flowsFile + ": could not be written");
    }
}

double
CpuSeconds(const rusage& usage)
{
    const auto seconds = [](const timeval& t) { return t.tv_sec + t.tv_usec / 1e6; };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void
Report(const Options& options, const Network& network, const std::vector<Flow>& flows)
{
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const std::vector<double> goodput = GoodputBps(options, flows);
    const double fair = options.FairShareBps();
    const double mean = std::accumulate(goodput.begin(), goodput.end(), 0.0) / goodput.size();
    double squares = 0;
    for (const double g : goodput)
    {
        squares += (g - mean) * (g - mean);
    }
    const double deviation = std::sqrt(squares / goodput.size());
    const QueueDisc::Stats& stats = network.bottleneck->GetStats();
    const double received = std::max<double>(1, stats.nTotalReceivedPackets);
    const uint64_t hops = PacketHops(network.devices);
    const double cpu = CpuSeconds(usage);
    const double capacity = options.bottleneckRate * 1e6 / 8 * options.seconds;
    std::cout << std::setprecision(10) << "{\"simulator\":\"ns-3\",\"queue\":\"" << options.queue
              << "\",\"buffer_packets\":" << options.buffer << ",\"rtt_ms\":" << options.rtt
              << ",\"flows\":" << options.flows << ",\"overhead_us\":" << options.overhead
              << ",\"jitter_ms\":" << options.jitter
              << ",\"initial_window\":" << options.initialWindow << ",\"min_rto_ms\":"
              << options.minRto << ",\"recovery\":\"" << options.recovery
              << "\",\"seed\":" << options.seed << ",\"simulated_seconds\":" << options.seconds
              << ",\"mean_goodput_percent\":" << 100 * mean / fair
              << ",\"stddev_over_fair_share\":" << deviation / fair << ",\"min_goodput_percent\":"
              << 100 * *std::min_element(goodput.begin(), goodput.end()) / fair
              << ",\"max_goodput_percent\":"
              << 100 * *std::max_element(goodput.begin(), goodput.end()) / fair
              << ",\"loss_ratio\":" << stats.nTotalDroppedPackets / received
              << ",\"dropped_packets\":" << stats.nTotalDroppedPackets
              << ",\"nic_drops\":" << NicDrops(network.devices)
              << ",\"utilisation\":" << stats.nTotalSentBytes / capacity
              << ",\"packet_hops\":" << hops << ",\"events\":" << Simulator::GetEventCount()
              << ",\"cpu_seconds\":" << cpu << ",\"hops_per_cpu_second\":" << hops / cpu
              << ",\"peak_rss_bytes\":" << usage.ru_maxrss * 1024L << "}" << std::endl;
}

} // namespace

int
main(int argc, char** argv)
{
    const Options options = Parse(argc, argv);
    RngSeedManager::SetSeed(options.seed);
    ConfigureTcp(options);
    const Network network = Build(options);
    const std::vector<Flow> flows = StartFlows(options, network);
    Simulator::Stop(Seconds(options.seconds));
    Simulator::Run();
    Report(options, network, flows);
    if (!options.flowsFile.empty())
    {
        WriteFlows(options, flows);
    }
    Simulator::Destroy();
    return 0;
}
