package bridge

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// profile is what has to be known of a driver and cannot be asked of it.
type profile struct {
	// The prefixes of the two marks that its lists filter by. Some drivers answer with an empty list where a class has none.
	cluster, role string
	// The marks are labels of the MachineClass object, not tags of its spec.
	inLabels bool
	// Where the identity tags go, and how their keys are written.
	identity []string
	form     form
	// A role that only one machine's VM bears can be added, and asked for by the driver's own filter. Proven for two drivers;
	// elsewhere a second role hides the VM or is refused.
	uidRole bool
	// Its deletions go by the provider id alone, and fail or do nothing without one.
	needsID bool
	// What a second CreateMachine does where the VM is there already.
	again again
	// Two calls at once can end the process.
	serial bool
	// How long the provider may not show a VM that it has accepted.
	delay time.Duration
	// What people must know, for GetDriverInfo's manifest.
	note string
}

// form is how identity tags are written.
type form int

const (
	nowhere form = iota // the driver has no tags of the class: the name is all that there is
	slashed             // keys as they are
	dashed              // "-" for "/" and "."
	narrow              // so, and values within [a-z0-9_-]
	asList              // "key=value", in a list
)

// again is what a second CreateMachine of the same machine does.
type again int

const (
	anotherVM again = iota // makes another VM, or fails: what is there is adopted, as it is
	resumes                // finds the VM and finishes what is left to do
	destroys               // deletes the VM: one that an earlier process left half-made is given up
)

const (
	slashCluster, slashRole = "kubernetes.io/cluster/", "kubernetes.io/role/"
	dotCluster, dotRole     = "kubernetes.io-cluster-", "kubernetes.io-role-"
	dashCluster, dashRole   = "kubernetes-io-cluster-", "kubernetes-io-role-"
)

var (
	inTags   = []string{"tags"}
	inLabels = []string{"labels"}
)

// The drivers that are known, by their names without case and punctuation.
var profiles = map[string]profile{
	"aws":       {cluster: slashCluster, role: slashRole, identity: inTags, form: slashed, uidRole: true, delay: 15 * time.Second, note: "a second create makes another VM; deletes by any id"},
	"openstack": {cluster: dotCluster, role: dotRole, identity: inTags, form: dashed, uidRole: true, again: resumes, delay: 10 * time.Second, note: "no GetMachineStatus; a failed create deletes by the name"},
	"azure":     {cluster: dotCluster, role: dotRole, identity: inTags, form: dashed, again: resumes, delay: 20 * time.Second, note: "left-over disks and interfaces look like VMs; exactly two marks"},
	"gcp":       {cluster: dashCluster, role: dashRole, identity: inLabels, form: narrow, delay: 10 * time.Second, note: "one zone; a cancelled create goes on to its end"},
	"alicloud":  {cluster: slashCluster, role: slashRole, identity: inTags, form: slashed, delay: 15 * time.Second, note: "a second create makes another VM"},
	"vsphere":   {cluster: slashCluster, role: slashRole, identity: inTags, form: slashed, delay: 10 * time.Second},
	"equinix":   {cluster: slashCluster, role: slashRole, identity: inTags, form: asList, needsID: true, delay: 10 * time.Second, note: "says NotFound to any error; panics on a network error"},
	// Its cluster tag was kubernetes.io/cluster/… and is cluster.metal-stack.io/id=… since.
	"metal":    {cluster: "cluster", identity: inTags, form: asList, needsID: true, serial: true, delay: 10 * time.Second, note: "one call at a time: its clients are in a map without a lock"},
	"stackit":  {identity: inLabels, form: dashed, again: resumes, delay: 10 * time.Second, note: "lists the VMs of one class alone"},
	"hcloud":   {again: destroys, needsID: true, delay: 10 * time.Second, note: "a second create deletes the server; one zone; no tags: the project is the only fence between clusters"},
	"ionos":    {needsID: true, delay: 10 * time.Second, note: "says NotFound to any error; a list makes one request for each server"},
	"kubevirt": {identity: inTags, form: dashed, delay: 2 * time.Second, note: "the namespace is the only fence between clusters"},
	"ironcore": {identity: inLabels, form: dashed, delay: 2 * time.Second, note: "the namespace is the only fence between clusters"},
	"ironcoremetal": {identity: inLabels, form: dashed, again: resumes, delay: 2 * time.Second,
		note: "the namespace is the only fence between clusters; 'recreate' is not told by GetMachineStatus, only by a repeated create"},
	"yandex": {cluster: dashCluster, role: dashRole, inLabels: true, identity: inLabels, form: narrow, needsID: true, delay: 10 * time.Second, note: "the class needs labels of its own; GetMachineStatus finds a VM in any error"},
	"gdc":    {delay: 10 * time.Second, note: "waits for the boot, up to 10 minutes; not tried"},
}

var (
	notLetters = regexp.MustCompile(`[^a-z0-9]`)
	synonyms   = map[string]string{"equinixmetal": "equinix", "packet": "equinix", "metalstack": "metal", "gce": "gcp", "aliyun": "alicloud", "hetzner": "hcloud", "onmetal": "ironcore"}
)

// profileOf finds a driver's profile by its name, or as --profile names or spells it: a guess could cost VMs, so that an
// unknown driver is refused.
func profileOf(driver, flag string) (string, profile, error) {
	if strings.HasPrefix(flag, "plain") {
		spelled, err := spelledProfile(flag)
		return flag, spelled, err
	}
	name := notLetters.ReplaceAllString(strings.ToLower(cmpOr(flag, driver)), "")
	name = cmpOr(synonyms[name], name)
	if found, ok := profiles[name]; ok {
		return name, found, nil
	}
	return "", profile{}, fmt.Errorf("nothing is known of a driver %q: say --profile, one of %s, or plain[,marks=slash|dot|dash][,uid-role][,needs-id][,resumes|destroys][,serial][,delay=DURATION]",
		driver, strings.Join(slices.Sorted(maps.Keys(profiles)), ", "))
}

// spelledProfile reads "plain,…".
func spelledProfile(text string) (p profile, err error) {
	styles := map[string]profile{
		"slash": {cluster: slashCluster, role: slashRole, identity: inTags, form: slashed},
		"dot":   {cluster: dotCluster, role: dotRole, identity: inTags, form: dashed},
		"dash":  {cluster: dashCluster, role: dashRole, identity: inLabels, form: narrow},
	}
	p.delay = 10 * time.Second
	for _, word := range strings.Split(text, ",") {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "plain":
		case "marks":
			style, ok := styles[value]
			if !ok {
				return p, fmt.Errorf("--profile: marks are slash, dot or dash, not %q", value)
			}
			p.cluster, p.role, p.identity, p.form = style.cluster, style.role, style.identity, style.form
		case "uid-role":
			p.uidRole = true
		case "needs-id":
			p.needsID = true
		case "resumes":
			p.again = resumes
		case "destroys":
			p.again = destroys
		case "serial":
			p.serial = true
		case "delay":
			if p.delay, err = time.ParseDuration(value); err != nil {
				return p, fmt.Errorf("--profile: %w", err)
			}
		default:
			return p, fmt.Errorf("--profile: %q is not known", word)
		}
	}
	return p, nil
}

func cmpOr(one, other string) string {
	if one != "" {
		return one
	}
	return other
}
